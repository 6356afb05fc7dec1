"""requests-oauthlib."""

import os

from application import CALLBACK, CLIENT_ID, CLIENT_SECRET, Claims, metadata, serve
from flask import session
from requests_oauthlib import OAuth2Session

# The application of this test is served without TLS.
os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"
provider = metadata()
SCOPE = ["openid", "email"]


def new_session() -> OAuth2Session:
    return OAuth2Session(CLIENT_ID, redirect_uri=CALLBACK, scope=SCOPE, pkce="S256", state=session.get("state"))


def claims(oauth: OAuth2Session) -> Claims:
    return dict(oauth.get(provider["userinfo_endpoint"]).json())


def login() -> str:
    oauth = new_session()
    address, session["state"] = oauth.authorization_url(provider["authorization_endpoint"])
    session["verifier"] = oauth._code_verifier
    return str(address)


def callback(address: str) -> Claims:
    oauth = new_session()
    oauth._code_verifier = session["verifier"]
    session["tokens"] = oauth.fetch_token(
        provider["token_endpoint"], authorization_response=address, client_secret=CLIENT_SECRET
    )
    return claims(oauth)


def refresh() -> Claims:
    oauth = OAuth2Session(CLIENT_ID, token=session["tokens"])
    oauth.refresh_token(provider["token_endpoint"], auth=(CLIENT_ID, CLIENT_SECRET))
    return claims(oauth)


serve(login, callback, refresh)
