"""Django's settings as `startproject` writes them, for the peers."""

from typing import Any

from django.conf import settings
from django.core.wsgi import get_wsgi_application

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]


def configure(urlconf: str, **more: Any) -> None:
    """Settings of `startproject`, without DEBUG and with what the peer adds."""
    settings.configure(
        **{
            "SECRET_KEY": "of a peer that keeps nothing secret",
            "DEBUG": False,
            "ALLOWED_HOSTS": ["127.0.0.1"],
            "INSTALLED_APPS": [
                "django.contrib.admin",
                "django.contrib.auth",
                "django.contrib.contenttypes",
                "django.contrib.sessions",
                "django.contrib.messages",
                "django.contrib.staticfiles",
                "rest_framework",
            ],
            "MIDDLEWARE": MIDDLEWARE,
            "ROOT_URLCONF": urlconf,
            "DEFAULT_AUTO_FIELD": "django.db.models.BigAutoField",
            "USE_TZ": True,
            "STATIC_URL": "static/",
            **more,
        }
    )


def application():
    """Django's WSGI application, its responses passed on whole, as identity_platform.wsgi does.

    By itself granian asks Django for a body piece by piece, and head and body leave as two packets, which on a kept
    connection can wait for each other for 40 ms. That is no cost of a bare view.
    """
    django = get_wsgi_application()

    def whole(environ, start_response):
        response = django(environ, start_response)
        body = response.content
        response.close()
        return [body]

    return whole
