"""django-allauth headless with its defaults, but for what makes it comparable: the platform's argon2id, and no rate limits.

`python -m bench.peers.allauth.peer` makes the tables; granian serves `application`. Sessions are in the database (Django's
default) and the database connection persists. With PEER_TOKENS=jwt a login returns a JWT and a refresh token instead of the
session's key; they are signed with HS256, which is faster than its default RS256.
"""

import os

from bench.peers import stock
from django.urls import include, path
from psycopg.conninfo import conninfo_to_dict


_strategies = {"session": "sessions.SessionTokenStrategy", "jwt": "jwt.strategy.JWTTokenStrategy"}
_strategy = _strategies[os.environ.get("PEER_TOKENS", "session")]
_parts = conninfo_to_dict(os.environ["PEER_DATABASE_URL"])
stock.configure(
    "bench.peers.allauth.peer",
    INSTALLED_APPS=[
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "django.contrib.messages",
        "allauth",
        "allauth.account",
        "allauth.headless",
    ],
    MIDDLEWARE=[*stock.MIDDLEWARE, "allauth.account.middleware.AccountMiddleware"],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {"context_processors": ["django.template.context_processors.request"]},
        }
    ],
    AUTHENTICATION_BACKENDS=["allauth.account.auth_backends.AuthenticationBackend"],
    PASSWORD_HASHERS=["bench.peers.allauth.hasher.Argon2"],
    ACCOUNT_LOGIN_METHODS={"email"},
    ACCOUNT_SIGNUP_FIELDS=["email*", "password1*"],
    ACCOUNT_EMAIL_VERIFICATION="none",
    ACCOUNT_RATE_LIMITS=False,
    HEADLESS_ONLY=True,
    HEADLESS_CLIENTS=("app",),
    HEADLESS_TOKEN_STRATEGY=f"allauth.headless.tokens.strategies.{_strategy}",
    HEADLESS_JWT_ALGORITHM="HS256",
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": _parts["dbname"],
            "USER": _parts["user"],
            "HOST": _parts["host"],
            "CONN_MAX_AGE": None,
        }
    },
)
application = stock.application()
urlpatterns = [path("_allauth/", include("allauth.headless.urls"))]

if __name__ == "__main__":
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
