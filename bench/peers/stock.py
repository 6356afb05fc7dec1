"""Django's settings as `startproject` writes them, for the peers."""

from typing import Any

from django.conf import settings

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
