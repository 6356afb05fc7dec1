"""A Django application that signs users in with Authlib. `python app.py` serves it; README.md says what it needs."""

import os
import secrets
from typing import Any
from urllib.parse import urlencode

import django
from authlib.integrations.base_client import OAuthError
from authlib.integrations.django_client import OAuth
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.core.servers.basehttp import run
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path
from django.utils.html import format_html

# Without a configuration of Django's, requests are not logged.
settings.configure(
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    LOGGING_CONFIG=None,
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    ROOT_URLCONF=__name__,
    # New at every start, which signs everyone out. A real application has one secret key and sessions in a database.
    SECRET_KEY=os.environ.get("SECRET_KEY") or secrets.token_urlsafe(),
    SESSION_COOKIE_NAME="sample_session",
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
)
django.setup()

# --- configuration
oauth = OAuth()
oauth.register(
    "identity",
    client_id=os.environ["OIDC_CLIENT_ID"],
    client_secret=os.environ["OIDC_CLIENT_SECRET"],
    server_metadata_url=os.environ["OIDC_ISSUER"] + "/.well-known/openid-configuration",
    client_kwargs={"scope": "openid profile email", "code_challenge_method": "S256"},
)
# --- end of configuration

PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>Sample application</title>"
    '<body style="font: 1.1rem/1.6 system-ui; max-width: 36rem; margin: 4rem auto; padding: 0 1rem">'
    "<h1>Sample application</h1>{}"
)


def page(text: str, *values: object, status: int = 200) -> HttpResponse:
    """Return a page with this text."""
    return HttpResponse(format_html(PAGE, format_html(text + "{}", *values, "")), status=status)


def home(request: HttpRequest) -> HttpResponse:
    """Show who is signed in."""
    user = request.session.get("user")
    if user is None:
        return page('<p>You are not signed in.</p><p><a href="/login">Sign in</a></p>')
    text = '<p>Signed in as <strong id="user">{}</strong> ({}).</p><p>sub: {}</p><p><a href="/logout">Sign out</a></p>'
    return page(text, user.get("name") or user["email"], user["email"], user["sub"])


def login(request: HttpRequest) -> Any:
    """Send the browser to the sign-in page of the tenant."""
    return oauth.identity.authorize_redirect(request, request.build_absolute_uri("/callback"))


def callback(request: HttpRequest) -> HttpResponse:
    """Exchange the code; Authlib checks state, nonce, signature, issuer and audience."""
    try:
        token = oauth.identity.authorize_access_token(request)
    except OAuthError as error:
        return page('<p>{}</p><p><a href="/login">Try again</a></p>', error.description or error.error, status=400)
    # A new session key for a user who has just signed in. `sub` never changes, so it is what an application stores.
    request.session.cycle_key()
    request.session["user"] = {name: token["userinfo"].get(name) for name in ("sub", "name", "email")}
    request.session["id_token"] = token["id_token"]
    return HttpResponseRedirect("/")


def logout(request: HttpRequest) -> HttpResponse:
    """End the session here, then at the tenant, which sends the browser back."""
    hint = request.session.get("id_token", "")
    request.session.flush()
    to = {"id_token_hint": hint, "post_logout_redirect_uri": request.build_absolute_uri("/")}
    return HttpResponseRedirect(f"{oauth.identity.load_server_metadata()['end_session_endpoint']}?{urlencode(to)}")


urlpatterns = [path("", home), path("login", login), path("callback", callback), path("logout", logout)]

if __name__ == "__main__":
    run("127.0.0.1", int(os.environ.get("PORT", "8001")), WSGIHandler(), threading=True)
