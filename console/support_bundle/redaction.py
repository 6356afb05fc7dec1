"""Settings without secrets, by the names of the settings, the form of URLs and the values of the known secrets.

Three rules because each misses something: a name can say nothing (LOCATION), a value can be quoted by an error message.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from django.conf import ENVIRONMENT_VARIABLE, settings
from django.views.debug import SafeExceptionReporterFilter

from identity_platform import library_settings

REDACTED: Final = "(redacted)"
# The end of the name of a variable that holds a secret, not just a number or an address about secrets (TOKEN_ISSUER).
_SECRET_NAME: Final = re.compile(
    r"(SECRET|PASSWORD|PASSPHRASE|CREDENTIALS?|TOKEN|KEYS?|KEY_ID|HEADERS|AUTHORIZATION)$", re.IGNORECASE
)
# A shorter one is part of too many words to be replaced wherever it stands.
_SHORTEST_SECRET: Final = 6
_USER_INFO: Final = re.compile(r"(?<=://)[^/\s'\"]+@")
_QUERY: Final = re.compile(r"(://[^?\s'\"]*)\?[^\s'\"]*")


# Settings without secrets whose names Django's rule hides.
_HARMLESS: Final = {"PASSWORD_RESET_URL", "TOKEN_AUDIENCE", "TOKEN_ISSUER", "WEBAUTHN_ORIGINS", "WEBAUTHN_RP_ID"}
_UNCHANGED: Final = {"CONSOLE_MIDDLEWARE", "INSTALLED_APPS", "MIDDLEWARE", "PLATFORM_APPS", "TEMPLATES"}


class SettingsFilter(SafeExceptionReporterFilter):
    """Django's rule for settings on error pages, which is by name; beyond it, URLs lose user, password and query."""

    cleansed_substitute = REDACTED

    def cleanse_setting(self, key: str | int, value: object) -> object:
        if value is None or isinstance(value, bool | int | float):
            return value
        cleansed = super().cleanse_setting("" if key in _HARMLESS else key, value)
        return without_url_secrets(cleansed) if isinstance(cleansed, str) else cleansed


def redacted_settings() -> dict[str, object]:
    """Return the settings that the environment can change; the same for all installations are left out."""
    changeable_names = (
        vars(import_module(os.environ[ENVIRONMENT_VARIABLE])).keys() - vars(library_settings).keys() - _UNCHANGED
    )
    return {name: value for name, value in SettingsFilter().get_safe_settings().items() if name in changeable_names}


def without_url_secrets(text: str) -> str:
    """Replace user, password and query of the URLs in the text."""
    return _QUERY.sub(rf"\1?{REDACTED}", _USER_INFO.sub(f"{REDACTED}@", text))


def without_secrets(value: object, secrets: Sequence[str] | None = None) -> Any:
    """Return the value as JSON knows it, with every known secret of this process and of URLs replaced in all texts."""
    if value is None or isinstance(value, bool | int | float):
        return value
    # The longest first: one secret can be part of another.
    secrets = sorted(_known_secrets(), key=len, reverse=True) if secrets is None else secrets
    if isinstance(value, Mapping):
        return {without_secrets(str(key), secrets): without_secrets(each, secrets) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [without_secrets(each, secrets) for each in value]
    text = str(value)
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return without_url_secrets(text)


def _known_secrets() -> set[str]:
    return {text for text in _secret_texts() if len(text) >= _SHORTEST_SECRET}


def _secret_texts() -> Iterator[str]:
    """Yield the secrets of settings and environment, also those that the platform does not read."""
    yield str(settings.SECRET_KEY)
    yield from re.split(r"[\s,:]+", str(settings.ENCRYPTION_KEYS))
    for name, value in os.environ.items():
        text = _content(value) if name.endswith("_FILE") else value
        if _SECRET_NAME.search(name.removesuffix("_FILE")):
            yield text
        yield from _secrets_of_url(text)
    yield from _secrets_of_url(settings.REDIS_URL)
    databases: list[Mapping[str, Any]] = [*settings.DATABASES.values(), settings.DATABASE_ADMIN]
    for database in databases:
        yield str(database["PASSWORD"])
        yield from (str(value) for name, value in database["OPTIONS"].items() if _SECRET_NAME.search(name))


def _content(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _secrets_of_url(text: str) -> Iterator[str]:
    """Yield the password of a URL, and the values of its query that have a secret's name; nothing of other texts."""
    try:
        url = urlsplit(text)
    except ValueError:
        return
    if not url.netloc:
        return
    password = url.netloc.rpartition("@")[0].partition(":")[2]
    yield from (password, unquote(password))
    yield from (value for name, value in parse_qsl(url.query) if _SECRET_NAME.search(name))
