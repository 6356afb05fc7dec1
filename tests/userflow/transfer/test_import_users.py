"""Import end users from files: accepted rows, rejected rows and the report."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tenants.entering.context import in_tenant
from tests.userflow.passwords.test_foreign_hashes import HASHES, SECRET
from tests.userflow.transfer.files import address, emails, everything, jsonl, reported, run, slug, table
from tests.world import Api, TestTenant, User
from userflow.accounts.models import EndUser


def sign_in(tenant: TestTenant, email: str, password: str) -> int:
    body = {"client_id": str(tenant.client_id), "email": email, "password": password}
    return int(Api().post("/uflow/auth/enduser/login", body).status_code)


def stored(tenant: TestTenant, email: str) -> EndUser:
    with in_tenant(tenant.id):
        return EndUser.objects.get(email=email)


def test_import_stores_the_local_provider_in_one_spelling(tenant: TestTenant, tmp_path: Path) -> None:
    email = address()
    ended = run("import_users", slug(tenant), jsonl(tmp_path / "people.jsonl", {"email": email, "provider": "Local"}))
    assert (ended.code, stored(tenant, email).provider) == (0, "local")


@pytest.mark.usefixtures("production_hashes")
def test_imported_hash_signs_in_and_is_replaced(tenant: TestTenant, tmp_path: Path) -> None:
    kinds = ("bcrypt 2b", "scrypt (PHC)", "pbkdf2 sha256 (passlib)", "argon2id (PHC)", "argon2id (Django)")
    people = {address(): HASHES[kind][1] for kind in kinds}
    rows = [{"email": email, "password_hash": encoded} for email, encoded in people.items()]
    ended = run("import_users", slug(tenant), table(tmp_path / "people.csv", *rows))
    assert (ended.code, ended.said.splitlines()[-1]) == (0, "5 created, 0 updated, 0 skipped, 0 failed of 5 rows.")
    for email in people:
        assert sign_in(tenant, email, "wrong horse 9 b") == 401
        assert sign_in(tenant, email, SECRET) == 200
        assert stored(tenant, email).password.startswith("argon2$argon2id$v=19$m=19456,t=2,p=1$")
        assert sign_in(tenant, email, SECRET) == 200


def test_import_stores_all_fields(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    row = {
        "id": "0d5a3f0e-6f1c-4a34-9d0a-1f4f0d6a8c11",
        "email": "Ann@Example.com",
        "name": 'Ann, the "first"\nof her name'.replace("\n", " "),
        "active": False,
        "provider": "ldap",
        "language": "de",
        "external_id": "auth0|5F7c",
        "metadata": {"floor": 3, "tags": ["a", "ü"]},
        "app_metadata": {"plan": {"seats": 3}},
        "groups": ["Staff"],
        "roles": ["editor"],
        "email_verified": True,
        "created_at": "2020-01-31T12:00:00+01:00",
        "last_login": "2021-01-31T12:00:00Z",
    }
    ended = run("import_users", slug(tenant), jsonl(tmp_path / "p.jsonl", row), "--create-missing")
    assert ended.code == 0, ended.said
    [(email, found)] = everything(tenant).items()
    assert (email, str(found["id"]), found["active"], found["verified"]) == ("Ann@example.com", row["id"], False, True)
    assert (found["name"], found["provider"], found["metadata"]) == (row["name"], "ldap", row["metadata"])
    assert (found["external_id"], found["app_metadata"]) == ("auth0|5F7c", row["app_metadata"])
    assert (found["groups"], found["roles"], found["language"]) == (["Staff"], ["editor"], "de")
    assert found["created_at"].isoformat() == "2020-01-31T11:00:00+00:00"


def test_row_without_roles_gets_default_role(tenant: TestTenant, tmp_path: Path) -> None:
    plain, bare = address(), address()
    rows = [{"email": plain}, {"email": bare, "roles": []}]
    assert run("import_users", slug(tenant), jsonl(tmp_path / "p.jsonl", *rows)).code == 0
    found = everything(tenant)
    assert (found[plain]["roles"], found[bare]["roles"]) == (["user"], [])


def test_import_reads_spreadsheet_csv(tenant: TestTenant, tmp_path: Path) -> None:
    mark, email = secrets.token_hex(4), address()
    tenant.api.post("/authmgr/groups", {"name": f"one {mark}"})
    tenant.api.post("/authmgr/groups", {"name": f"two {mark}"})
    text = f'Email,Name,Active,Groups,Metadata\r\n{email},"Smith, ""Ann""",FALSE,one {mark}; two {mark},"{{""a"": 1}}"\r\n\r\n'
    file = tmp_path / "people.csv"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert run("import_users", slug(tenant), file).code == 0
    found = everything(tenant)[email]
    assert (found["name"], found["active"], found["metadata"]) == ('Smith, "Ann"', False, {"a": 1})
    assert found["groups"] == [f"one {mark}", f"two {mark}"]


BAD: list[tuple[Any, str, str]] = [
    ({"email": "no address"}, "email", "Send an e-mail address"),
    ({"email": "\u212aate@example.com"}, "email", "Send an e-mail address"),
    ({"email": "ann@ex\u212aample.com"}, "email", "Send an e-mail address"),
    ({"name": "Without address"}, "email", "This field is required."),
    ({"email": "@", "name": "x" * 256}, "name", "at most 255 characters"),
    ({"email": 7}, "email", "Send an e-mail address"),
    ({"email": "{}", "active": "yes"}, "active", "Send true or false."),
    ({"email": "{}", "password_hash": "secret"}, "password_hash", "Not a bcrypt"),
    (
        {"email": "{}", "password_hash": HASHES["bcrypt 2b"][1].replace("$04$", "$31$")},
        "password_hash",
        "costs too much",
    ),
    (
        {"email": "{}", "password_hash": "$argon2id$v=19$m=9999999,t=1,p=1$c29tZXNhbHQ$aGFzaA"},
        "password_hash",
        "costs too",
    ),
    ({"email": "{}", "password_hash": "$2b$" + "x" * 100_000}, "password_hash", "Not a bcrypt"),
    ({"email": "{}", "metadata": {"a": "x" * 17_000}}, "metadata", "at most 16384 bytes"),
    (
        {"email": "{}", "metadata": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {}}}}}}}}}},
        "metadata",
        "levels deep",
    ),
    ({"email": "{}", "metadata": []}, "metadata", "Send a JSON object"),
    ({"email": "{}", "app_metadata": "x"}, "app_metadata", "Send a JSON object"),
    ({"email": "{}", "external_id": "x" * 256}, "external_id", "at most 255 characters"),
    ({"email": "{}", "external_id": ""}, "external_id", "may not be empty"),
    ({"email": "{}", "groups": ["missing name"]}, "groups", "There is none with the name"),
    ({"email": "{}", "roles": ["missing name"]}, "roles", "There is none with the name"),
    ({"email": "{}", "roles": "admin"}, "roles", "Send a list of names."),
    ({"email": "{}", "client_id": "00000000-0000-4000-8000-000000000000"}, "client_id", "No client of this tenant"),
    ({"email": "{}", "id": "7"}, "id", "Send a UUID"),
    ({"email": "{}", "created_at": "2999-01-01T00:00:00Z"}, "created_at", "past"),
    ({"email": "{}", "created_at": "yesterday"}, "created_at", "Send a time"),
    ({"email": "{}", "mfa_methods": ["totp"]}, "mfa_methods", "no such field"),
    ({"email": "{}", "kind": "admin"}, "kind", "Send one of"),
    ({"kind": "role", "name": "x", "email": "a@example.com"}, "email", "has no such field"),
    ({"kind": "role", "name": "missing name"}, "name", "--create-missing"),
    (b"{", "", "not valid JSON"),
    (b'{"email": "a@example.com", "email": "b@example.com"}', "", "more than once"),
    (b'{"email": "a@example.com", "name": "\\u0000"}', "", "NUL"),
    (b'{"email": "a@example.com", "name": "\\ud800"}', "", "surrogate"),
    (b'{"email": "\xff@example.com"}', "", "not valid UTF-8"),
    (b"[1]", "", "must be a JSON object"),
    (b'{"name": "' + b"x" * 1_100_000 + b'"}', "", "longer than"),
    (b"[" * 1_000, "", "nested"),
]


def test_import_reports_bad_rows_and_imports_others(tenant: TestTenant, tmp_path: Path) -> None:
    good = [{"email": address()}, {"email": address()}]
    bad = [
        {**row, "email": address()} if isinstance(row, dict) and row.get("email") == "{}" else row for row, _, _ in BAD
    ]
    report = tmp_path / "bad.csv"
    file = jsonl(tmp_path / "p.jsonl", good[0], *bad, good[1])
    ended = run("import_users", slug(tenant), file, "--report", report, "--batch-size", "7")
    assert ended.code == 1
    assert f"2 created, 0 updated, 0 skipped, {len(BAD)} failed of {len(BAD) + 2} rows." in ended.said
    found = reported(report)
    for line, (_, field, says) in enumerate(BAD, 2):
        assert any(at == line and of == field and says in why for at, of, why in found), (line, field, says, found)
    assert {at for at, _, _ in found} == set(range(2, len(BAD) + 2))
    assert set(emails(tenant)) >= {row["email"] for row in good}
    assert report.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it is empty"),
        (b"email,password\n", "unknown: 'password'"),
        (b"email,email\n", "names a column twice"),
        (b"email;name\n", "separated by commas"),
        (",".join(f"c{n}" for n in range(100_000)).encode(), "100000 columns"),
        (b"x" * 1_200_000, "longer than"),
        (b"\xff\xfe\x00e", "unknown"),
        (b'email,"na\n', "must name the columns"),
    ],
    ids=range(8),
)
def test_import_rejects_csv_with_bad_header(content: bytes, says: str, tenant: TestTenant, tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_bytes(content)
    ended = run("import_users", slug(tenant), file)
    assert ended.code == 2
    assert says in ended.said


def test_import_reports_broken_csv_cells(tenant: TestTenant, tmp_path: Path) -> None:
    good, report = address(), tmp_path / "bad.jsonl"
    lines = [
        b"email,name,metadata",
        f"{good},Ann,".encode(),
        f"{address()},Ann".encode(),
        f"{address()},\xff\xfe,".encode("latin-1"),
        f'{address()},"over\ntwo lines",'.encode(),
        f"{address()},a\0b,".encode(),
        f"{address()},Ann,{{".encode(),
        f'{address()},"never closed,'.encode(),
        f"{address()},swallowed,".encode(),
    ]
    file = tmp_path / "people.csv"
    file.write_bytes(b"\n".join(lines))
    ended = run("import_users", slug(tenant), file, "--report", report)
    assert ended.code == 1
    assert [(line, field) for line, field, _ in reported(report)] == [
        (3, ""),
        (4, "name"),
        (5, "name"),
        (7, "name"),
        (8, "metadata"),
        (9, ""),
    ]
    assert "nothing after this line was read" in reported(report)[-1][2]
    assert good in emails(tenant)


@pytest.mark.parametrize(
    ("choice", "code", "said"),
    [
        ("fail", 1, "1 created, 0 updated, 0 skipped, 2 failed"),
        ("skip", 0, "1 created, 0 updated, 2 skipped, 0 failed"),
        ("update", 0, "1 created, 2 updated, 0 skipped, 0 failed"),
    ],
)
@pytest.mark.parametrize("size", [1, 100])
def test_import_conflict_modes(
    choice: str, code: int, said: str, size: int, tenant: TestTenant, tmp_path: Path
) -> None:
    person, new = tenant.register(name="Before"), address()
    assert sign_in(tenant, person.email, person.password) == 200
    own = f"crm-{secrets.token_hex(6)}"
    changes = {"name": "After", "language": "fr", "metadata": {"a": 1}, "app_metadata": {"b": 2}, "external_id": own}
    rows = [
        {"email": person.email.upper().replace("EXAMPLE.COM", "example.com"), **changes},
        {"email": new, "name": "First"},
        {"email": new, "name": "Second", "password_hash": HASHES["bcrypt 2b"][1], "active": False},
    ]
    file = jsonl(tmp_path / "p.jsonl", *rows)
    ended = run("import_users", slug(tenant), file, "--on-conflict", choice, "--batch-size", size)
    assert ended.code == code
    assert said in ended.said
    found = everything(tenant)
    kept = choice != "update"
    assert (found[person.email]["name"], found[new]["name"]) == (("Before", "First") if kept else ("After", "Second"))
    stored = found[person.email]
    assert (stored["language"], stored["metadata"]) == (("", {}) if kept else ("fr", {"a": 1}))
    assert (stored["external_id"], stored["app_metadata"]) == ((None, {}) if kept else (own, {"b": 2}))
    # Users can still sign in: an update takes neither password nor status from the file.
    assert (found[new]["active"], found[new]["password"]) == (True, "")
    assert sign_in(tenant, person.email, person.password) == 200


@pytest.mark.parametrize("choice", ["fail", "skip", "update"])
@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("dry", [False, True])
def test_import_rejects_external_ids_of_others(
    choice: str, size: int, dry: bool, tenant: TestTenant, tmp_path: Path
) -> None:
    mark, holder, unused = secrets.token_hex(6), tenant.register(), tenant.register()
    assert sign_in(tenant, holder.email, holder.password) == 200
    path = f"/uflow/user/enduser/{tenant.id}/{holder.id}"
    assert tenant.api.put(path, {"external_id": f"{mark}-1"}).status_code == 200
    new, second = address(), address()
    rows = [
        {"email": new, "external_id": f"{mark}-2"},
        # Of a user in the table, of an earlier row, and of a user whose registration would yield to the import.
        {"email": second, "external_id": f"{mark}-1"},
        {"email": second, "external_id": f"{mark}-2"},
        {"email": unused.email, "external_id": f"{mark}-1"},
        {"email": second, "external_id": f"{mark}-3"},
    ]
    report = tmp_path / "bad.jsonl"
    options = ("--on-conflict", choice, "--batch-size", size, "--report", report, *(["--dry-run"] if dry else []))
    ended = run("import_users", slug(tenant), jsonl(tmp_path / "p.jsonl", *rows), *options)
    assert ended.code == 1
    assert "2 created, 0 updated, 0 skipped, 3 failed of 5 rows." in ended.said
    assert [(line, field) for line, field, _ in reported(report)] == [(n, "external_id") for n in (2, 3, 4)]
    found = everything(tenant)
    assert (found[holder.email]["external_id"], found[unused.email]["id"]) == (f"{mark}-1", unused.id)
    if not dry:
        assert (found[new]["external_id"], found[second]["external_id"]) == (f"{mark}-2", f"{mark}-3")


def test_import_replaces_taken_ids(tenant: TestTenant, tmp_path: Path) -> None:
    person, new, other = tenant.register(), address(), address()
    rows = [{"id": str(person.id), "email": new}, {"id": str(person.id), "email": other}]
    assert run("import_users", slug(tenant), jsonl(tmp_path / "p.jsonl", *rows)).code == 0
    found = everything(tenant)
    assert len({found[email]["id"] for email in (person.email, new, other)}) == 3
    assert found[person.email]["id"] == person.id


def test_two_tenants_import_the_same_file(tenant: TestTenant, other_tenant: TestTenant, tmp_path: Path) -> None:
    row = {"id": str(uuid4()), "email": address()}
    file = jsonl(tmp_path / "p.jsonl", row)
    for each in (tenant, other_tenant):
        assert run("import_users", slug(each), file).code == 0
        assert str(everything(each)[row["email"]]["id"]) == row["id"]
    foreign = {"email": address(), "client_id": str(other_tenant.client_id)}
    ended = run("import_users", slug(tenant), jsonl(tmp_path / "q.jsonl", foreign))
    assert (ended.code, "No client of this tenant" in ended.said) == (1, True)
    assert run("import_users", slug(tenant), tmp_path / "q.jsonl", "--default-client").code == 0
    assert User(stored(tenant, foreign["email"]).pk, foreign["email"]).id not in {
        found["id"] for found in everything(other_tenant).values()
    }
