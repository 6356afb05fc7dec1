"""The application around a library. /login sends the browser to the provider, /callback takes it back, / has the user's
claims as JSON, and /refresh those that refreshed tokens give. Environment variables configure it.
"""

import os
from collections.abc import Callable
from typing import Any

import requests
from flask import Flask, jsonify, redirect, request, session
from werkzeug.wrappers import Response

ISSUER = os.environ["OIDC_ISSUER"]
CLIENT_ID = os.environ["OIDC_CLIENT_ID"]
CLIENT_SECRET = os.environ["OIDC_CLIENT_SECRET"]
PORT = int(os.environ["PORT"])
HOME = f"http://127.0.0.1:{PORT}/"
CALLBACK = f"{HOME}callback"

Claims = dict[str, Any]


def metadata() -> dict[str, Any]:
    return dict(requests.get(f"{ISSUER}/.well-known/openid-configuration", timeout=30).json())


def new_application() -> Flask:
    application = Flask(__name__)
    application.secret_key = os.environ["SECRET_KEY"]
    return application


def listen(application: Flask) -> None:
    application.run("127.0.0.1", PORT)


def serve(login: Callable[[], str], callback: Callable[[str], Claims], refresh: Callable[[], Claims]) -> None:
    """Serve an application: `login` returns the address of the provider, `callback` takes that of the response."""
    application = new_application()

    @application.get("/login")
    def start() -> Response:
        return redirect(login())

    @application.get("/callback")
    def end() -> Response:
        session["user"] = callback(request.url)
        return redirect("/")

    @application.get("/refresh")
    def renew() -> Response:
        return jsonify(refresh())

    @application.get("/")
    def home() -> Response:
        return jsonify(session.get("user", {}))

    listen(application)
