"""An API that verifies access tokens of the audience API_AUDIENCE with python-jose."""

import os

import requests
from application import ISSUER, listen, metadata, new_application
from flask import Response, jsonify, request
from jose import JWTError, jwt

application = new_application()
keys = requests.get(metadata()["jwks_uri"], timeout=30).json()


@application.get("/python-jose")
def home() -> tuple[Response, int] | Response:
    token = request.headers["Authorization"].removeprefix("Bearer ")
    try:
        claims = jwt.decode(token, keys, algorithms=["ES256"], audience=os.environ["API_AUDIENCE"], issuer=ISSUER)
    except JWTError as error:
        return jsonify(error=str(error)), 401
    return jsonify(sub=claims["sub"])


listen(application)
