"""social-auth-app-django, a site of one file."""

import os
import sys
from typing import Any

import django
import requests
from application import CLIENT_ID, CLIENT_SECRET, ISSUER, PORT, metadata
from django.conf import settings
from django.core.management import call_command, execute_from_command_line
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path

settings.configure(
    SECRET_KEY=os.environ["SECRET_KEY"],
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}},
    INSTALLED_APPS=[
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "social_django",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ],
    AUTHENTICATION_BACKENDS=["social_core.backends.open_id_connect.OpenIdConnectAuth"],
    LOGIN_REDIRECT_URL="/",
    SOCIAL_AUTH_OIDC_OIDC_ENDPOINT=ISSUER,
    SOCIAL_AUTH_OIDC_KEY=CLIENT_ID,
    SOCIAL_AUTH_OIDC_SECRET=CLIENT_SECRET,
    SOCIAL_AUTH_OIDC_USE_PKCE=True,
)
django.setup()


def login(request: HttpRequest) -> HttpResponse:
    return HttpResponse('<form method="post" action="/login/oidc/"><button>Sign in</button></form>')


def home(request: HttpRequest) -> JsonResponse:
    return JsonResponse(claims(request.user))


def refresh(request: HttpRequest) -> JsonResponse:
    from social_django.utils import load_strategy

    account = request.user.social_auth.get()
    account.refresh_token(load_strategy(request))
    headers = {"Authorization": f"Bearer {account.access_token}"}
    return JsonResponse(requests.get(metadata()["userinfo_endpoint"], headers=headers, timeout=30).json())


def claims(user: Any) -> dict[str, str]:
    return {"sub": user.social_auth.get().uid, "email": user.email} if user.is_authenticated else {}


urlpatterns = [
    path("", home),
    path("login", login),
    path("refresh", refresh),
    path("", include("social_django.urls", namespace="social")),
]

if __name__ == "__main__":
    call_command("migrate", verbosity=0)
    execute_from_command_line([sys.argv[0], "runserver", f"127.0.0.1:{PORT}", "--noreload"])
