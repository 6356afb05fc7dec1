"""The script of docs/migrating.md on an export of a realm, and the import of what it writes."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from argon2.low_level import Type, hash_secret_raw

from tests.machine.conftest import ROOT
from tests.userflow.passwords.test_foreign_hashes import HASHES
from tests.userflow.transfer.files import everything, reported, run
from tests.userflow.transfer.test_import_users import sign_in
from tests.world import TestTenant

PAGE = (ROOT / "docs/migrating.md").read_text()
PASSWORD = "correct horse 9 battery"
# Its base64 has all three special characters: `+`, `/` and `=`.
SALT = b"\xfb\xef\xff\xfe salt of user"
CREATED = 1_580_468_400_123


def credential(value: bytes, algorithm: str, rounds: int, **more: list[str]) -> dict[str, Any]:
    """Return a credential as Keycloak exports it: two JSON texts inside JSON."""
    secret = {"value": encoded(value), "salt": encoded(SALT), "additionalParameters": {}}
    how = {"hashIterations": rounds, "algorithm": algorithm, "additionalParameters": more}
    own = {"id": str(uuid4()), "type": "password", "createdDate": CREATED}
    return {**own, "secretData": json.dumps(secret), "credentialData": json.dumps(how)}


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def argon2(version: str, number: int) -> dict[str, Any]:
    value = hash_secret_raw(PASSWORD.encode(), SALT, 2, 7168, 1, 32, Type.ID, number)
    more = {"hashLength": ["32"], "memory": ["7168"], "type": ["id"], "version": [version], "parallelism": ["1"]}
    return credential(value, "argon2", 2, **more)


def pbkdf2(algorithm: str, digest: str, size: int) -> dict[str, Any]:
    return credential(hashlib.pbkdf2_hmac(digest, PASSWORD.encode(), SALT, 3000, size), algorithm, 3000)


KINDS: dict[str, dict[str, Any]] = {
    "argon2": argon2("1.3", 0x13),
    "argon2-old": argon2("1.0", 0x10),
    "sha512": pbkdf2("pbkdf2-sha512", "sha512", 64),
    "sha256": pbkdf2("pbkdf2-sha256", "sha256", 64),
    "sha1": pbkdf2("pbkdf2", "sha1", 20),
}


def user(name: str, **fields: Any) -> dict[str, Any]:
    """Return a user as Keycloak exports it."""
    named = {"id": str(uuid4()), "createdTimestamp": CREATED, "username": name, "enabled": True, "totp": False}
    rest = {"credentials": [], "disableableCredentialTypes": [], "requiredActions": [], "notBefore": 0}
    return {**named, "emailVerified": True, "realmRoles": ["default-roles-acme"], **rest, **fields}


def written_by_the_script(realm: dict[str, Any], folder: Path) -> Path:
    """Run the script of the page on an export."""
    (script,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (folder / "keycloak_to_rows.py").write_text(script)
    (folder / "acme-realm.json").write_text(json.dumps(realm))
    command = [sys.executable, "-I", "keycloak_to_rows.py", "acme-realm.json"]
    with (folder / "users.jsonl").open("wb") as rows:
        subprocess.run(command, cwd=folder, stdout=rows, check=True, timeout=60)
    return folder / "users.jsonl"


@pytest.mark.usefixtures("production_hashes")
def test_users_of_keycloak_keep_id_groups_and_password(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    moving = {
        f"{kind}@acme.example": user(kind, email=f"{kind}@acme.example", credentials=[stored])
        for kind, stored in KINDS.items()
    }
    otp = {"type": "otp", "secretData": "{}", "credentialData": "{}"}
    moving["ann@acme.example"] = user(
        "ann", email="Ann@acme.example", firstName="Ann", lastName="Ö'Neill", groups=["/staff", "/staff/night"],
        credentials=[otp, KINDS["argon2"]], attributes={"floor": ["3"]},
    )  # fmt: skip
    moving["off@acme.example"] = user("off", email="off@acme.example", enabled=False, emailVerified=False)
    service = user("service-account-jobs", serviceAccountClientId="jobs")
    rows = written_by_the_script({"realm": "acme", "users": [*moving.values(), service]}, tmp_path)

    ended = run("import_users", tenant.slug, rows, "--create-missing", "--dry-run")
    assert ended.code == 1, ended.said
    report = tmp_path / "bad.jsonl"
    ended = run("import_users", tenant.slug, rows, "--create-missing", "--report", report)
    assert "7 created, 0 updated, 0 skipped, 1 failed of 8 rows." in ended.said
    assert [(line, field) for line, field, _ in reported(report)] == [(8, "email")]

    found = {email.lower(): one for email, one in everything(tenant).items()}
    assert {email: str(one["id"]) for email, one in found.items()} == {
        email: one["id"] for email, one in moving.items()
    }
    ann, off = found["ann@acme.example"], found["off@acme.example"]
    assert (ann["name"], ann["groups"], ann["roles"]) == ("Ann Ö'Neill", ["staff", "staff/night"], ["user"])
    assert (ann["active"], ann["verified"], ann["metadata"]) == (True, True, {})
    assert (off["active"], off["verified"], off["name"]) == (False, False, "")
    assert ann["created_at"].isoformat() == "2020-01-31T11:00:00.123000+00:00"
    for email in [*(f"{kind}@acme.example" for kind in KINDS), "ann@acme.example"]:
        assert (sign_in(tenant, email, "wrong horse 9 b"), sign_in(tenant, email, PASSWORD)) == (401, 200), email


def test_row_for_auth0_is_imported(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    (row,) = re.findall(r'^\{"email".*\}$', PAGE, re.MULTILINE)
    hashed = HASHES["bcrypt 2b"][1]
    file = tmp_path / "users.jsonl"
    file.write_text(row.replace("$2b$10$…", hashed))
    ended = run("import_users", tenant.slug, file, "--create-missing")
    assert ended.code == 0, ended.said
    [(email, found)] = everything(tenant).items()
    assert (email, found["verified"], found["roles"]) == ("ann@example.com", True, ["editor", "user"])
    assert (found["external_id"], found["app_metadata"]) == ("auth0|5f7c…", {"plan": "pro"})
    assert found["metadata"] == {"theme": "dark"}
    assert hashed in found["password"]
