"""MSAL for Python with an issuer that is not Microsoft's."""

from urllib.parse import parse_qsl, urlsplit

import msal
from application import CALLBACK, CLIENT_ID, CLIENT_SECRET, ISSUER, Claims, serve
from flask import session

client = msal.ConfidentialClientApplication(CLIENT_ID, client_credential=CLIENT_SECRET, oidc_authority=ISSUER)
SCOPES = ["email"]


def login() -> str:
    session["flow"] = client.initiate_auth_code_flow(SCOPES, redirect_uri=CALLBACK)
    return str(session["flow"]["auth_uri"])


def callback(address: str) -> Claims:
    result = client.acquire_token_by_auth_code_flow(session["flow"], dict(parse_qsl(urlsplit(address).query)))
    return dict(result["id_token_claims"])


def refresh() -> Claims:
    (account,) = client.get_accounts()
    result = client.acquire_token_silent_with_error(SCOPES, account, force_refresh=True)
    return dict(result["id_token_claims"])


serve(login, callback, refresh)
