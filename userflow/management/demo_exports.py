"""The `export` lines of embedded mode: printed at the first start, and again by `bin/manage demo`."""

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from identity_platform.installation import MANAGE
from identity_platform.serving import last_start
from tenants.models import Tenant
from userflow.accounts.models import AdminUser, Client

SLUG = "demo"
# Next to the keys of embedded mode, which protect the same data as these passwords.
FILE: Path = settings.VAR / "keys" / "demo.json"
USERS = {"OPERATOR": "operator", "ADMIN": "demo-admin"}


def remember(username: str, password: str) -> None:
    """Store a generated password in a file that only this system user can read."""
    draft = FILE.with_name(f".demo.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(remembered() | {username: password}, file)
    draft.rename(FILE)


def lines() -> Iterator[str]:
    """Yield lines for a shell; the README's curl lines use these names."""
    # Imported here because it loads the web server.
    from identity_platform.serving.server import address_of

    host, port, _ = last_start.address()
    yield _remark(f"Paste this into your shell to try the README. {MANAGE} demo prints it again.")
    yield _export("IDENTITY_VAR", settings.VAR)
    yield _export("BASE_URL", address_of(host, port))
    tenant = Tenant.objects.filter(slug=SLUG).first()
    if tenant is not None:
        yield _export("TENANT_ID", tenant.pk)
        yield _export("CLIENT_ID", Client.objects.get(tenant=tenant, is_default=True).pk)
    for prefix, username in USERS.items():
        yield from _credentials(prefix, username)


def _credentials(prefix: str, username: str) -> Iterator[str]:
    user = AdminUser.objects.filter(username=username).first()
    if user is None:
        return
    yield _export(f"{prefix}_USERNAME", username)
    password = remembered().get(username)
    if password is not None and user.check_password(password):
        yield _export(f"{prefix}_PASSWORD", password)
    else:
        yield _remark(f"The password of {username} was changed. Set a new one with: {MANAGE} changepassword {username}")


def _remark(text: str) -> str:
    """Return a command that does nothing: an interactive zsh knows no comments."""
    return f": {shlex.quote(text)}"


def remembered() -> dict[str, str]:
    """Return the generated passwords and secrets by name."""
    try:
        secrets: dict[str, str] = json.loads(FILE.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return secrets


def _export(name: str, value: object) -> str:
    return f"export {name}={shlex.quote(str(value))}"
