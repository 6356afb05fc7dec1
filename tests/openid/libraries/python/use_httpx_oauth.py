"""httpx-oauth, the client of FastAPI Users."""

import asyncio
import hashlib
import secrets
from base64 import urlsafe_b64encode
from urllib.parse import parse_qs, urlsplit

from application import CALLBACK, CLIENT_ID, CLIENT_SECRET, ISSUER, Claims, serve
from flask import session
from httpx_oauth.clients.openid import OpenID

client = OpenID(CLIENT_ID, CLIENT_SECRET, f"{ISSUER}/.well-known/openid-configuration")


def login() -> str:
    session["state"], session["verifier"] = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    challenge = urlsafe_b64encode(hashlib.sha256(session["verifier"].encode()).digest()).rstrip(b"=").decode()
    request = client.get_authorization_url(
        CALLBACK, session["state"], code_challenge=challenge, code_challenge_method="S256"
    )
    return asyncio.run(request)


def callback(address: str) -> Claims:
    response = parse_qs(urlsplit(address).query)
    if response["state"] != [session["state"]]:
        raise ValueError("The response is for another browser.")
    session["tokens"] = asyncio.run(client.get_access_token(response["code"][0], CALLBACK, session["verifier"]))
    return asyncio.run(claims(session["tokens"]["access_token"]))


def refresh() -> Claims:
    tokens = asyncio.run(client.refresh_token(session["tokens"]["refresh_token"]))
    return asyncio.run(claims(tokens["access_token"]))


async def claims(access_token: str) -> Claims:
    user, email = await client.get_id_email(access_token)
    return {"sub": user, "email": email}


serve(login, callback, refresh)
