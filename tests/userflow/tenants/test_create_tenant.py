"""The exit code of `create_tenant` says whether anything was tried."""

import json
import secrets
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tenants.models import Tenant
from tests.world import TestTenant
from userflow.accounts.models import AdminUser


def test_taken_slug_creates_nothing(tenant: TestTenant) -> None:
    with pytest.raises(CommandError, match="slug") as rejected:
        call_command("create_tenant", "Other", "--slug", tenant.slug, stdout=StringIO())
    assert rejected.value.returncode == 2


@pytest.mark.parametrize(
    ("name", "username", "email", "what"),
    [
        ("", "ann", "ann@acme.example", "name"),
        (" ", "ann", "ann@acme.example", "name"),
        ("two\nlines", "ann", "ann@acme.example", "name"),
        ("x" * 256, "ann", "ann@acme.example", "name"),
        ("Acme", " ", "ann@acme.example", "--admin-username"),
        ("Acme", "x" * 151, "ann@acme.example", "--admin-username"),
        ("Acme", "ann", "no-address", "--admin-email"),
        ("Acme", "ann", "\u00fc@acme.example", "--admin-email"),
    ],
)
def test_invalid_names_create_nothing(name: str, username: str, email: str, what: str) -> None:
    before = Tenant.objects.count()
    arguments = [name, "--admin-username", username, "--admin-email", email]
    with pytest.raises(CommandError, match=f"^{what}: ") as rejected:
        call_command("create_tenant", *arguments, stdout=StringIO())
    assert (rejected.value.returncode, Tenant.objects.count()) == (2, before)


def test_address_is_normalized() -> None:
    said = StringIO()
    mark = secrets.token_hex(4)
    arguments = ["Acme", "--admin-username", f" ann-{mark} ", "--admin-email", f"ann-{mark}@M\u00dcLLER.example"]
    call_command("create_tenant", *arguments, "--json", stdout=said)
    made = AdminUser.objects.get(pk=json.loads(said.getvalue())["admin"]["id"])
    assert (made.username, made.email) == (f"ann-{mark}", f"ann-{mark}@xn--mller-kva.example")
