"""idpyoidc, the successor of pyoidc."""

from urllib.parse import parse_qsl, urlsplit

from application import CALLBACK, CLIENT_ID, CLIENT_SECRET, HOME, ISSUER, Claims, serve
from flask import session
from idpyoidc.client.rp_handler import RPHandler

configuration = {
    "issuer": ISSUER,
    "client_id": CLIENT_ID,
    "client_secret": CLIENT_SECRET,
    "redirect_uris": [CALLBACK],
    "client_type": "oidc",
    "preference": {"scopes_supported": ["openid", "email"]},
    "client_authn_methods": ["client_secret_basic"],
    "add_ons": {
        "pkce": {
            "function": "idpyoidc.client.oauth2.add_on.pkce.add_support",
            "kwargs": {"code_challenge_length": 64, "code_challenge_method": "S256"},
        }
    },
}
handler = RPHandler(base_url=HOME, client_configs={ISSUER: configuration})


def login() -> str:
    return str(handler.begin(issuer_id=ISSUER))


def callback(address: str) -> Claims:
    response = dict(parse_qsl(urlsplit(address).query))
    result = handler.finalize(ISSUER, response)
    session["state"] = response["state"]
    return {name: result["userinfo"][name] for name in ("sub", "email")}


def refresh() -> Claims:
    tokens = handler.refresh_access_token(session["state"])
    user = handler.get_user_info(session["state"], access_token=tokens["access_token"])
    return {name: user[name] for name in ("sub", "email")}


serve(login, callback, refresh)
