"""Small imports and exports over REST, never with more permissions than the caller has."""

import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import settings as given
from django.db import connections

from identity_platform.audit.models import PlatformEvent, TenantEvent
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.models import WebhookTenant
from tests.userflow.passwords.test_foreign_hashes import HASHES, SECRET
from tests.userflow.transfer.files import address, emails, everything
from tests.userflow.user_index.reading import indexed
from tests.world import Api, TestTenant, User, capture_statements, sign_in_admin
from userflow.accounts.models import EndUser
from userflow.events.models import WebhookEndpoint, WebhookMessage

IMPORT, EXPORT = "/uflow/admin/enduser/import", "/uflow/admin/enduser/export"


def bring(tenant: TestTenant, *rows: Any, api: Api | None = None, **members: Any) -> Any:
    return (api or tenant.api).post(IMPORT, {"tenant_id": str(tenant.id), "rows": list(rows), **members})


def admin(tenant: TestTenant, *roles: str) -> Api:
    name = f"admin-{secrets.token_hex(4)}"
    body = {"username": name, "email": f"{name}@example.com", "password": SECRET, "tenant_id": str(tenant.id)}
    body |= {"first_name": "Ann", "last_name": "Admin"}
    response = tenant.api.post("/uflow/admin/users", {**body, "roles": list(roles)})
    assert response.status_code == 201, response.content
    return Api(token=sign_in_admin(name, SECRET)["access_token"])


def test_rest_import_reports_bad_rows(tenant: TestTenant) -> None:
    good = {"email": address(), "password_hash": HASHES["bcrypt 2b"][1]}
    response = bring(tenant, good, {"email": "invalid"}, {"email": good["email"]})
    assert (response.status_code, response.headers["Cache-Control"]) == (200, "no-store")
    said = response.json()
    assert (said["rows"], said["created"], said["failed"], said["dry_run"]) == (3, 1, 2, False)
    assert [(fault["line"], fault["field"]) for fault in said["report"]] == [(2, "email"), (3, "email")]
    assert tenant.sign_in(User(tenant.id, good["email"], password=SECRET))["access_token"]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_rest_import_accepts_file_content(form: str, tenant: TestTenant) -> None:
    email = address()
    content = f"email,name\r\n{email},Ann\r\n" if form == "csv" else f'{{"email": "{email}", "name": "Ann"}}\n'
    body = {"tenant_id": str(tenant.id), "format": form, "content": content}
    dry = tenant.api.post(IMPORT, {**body, "dry_run": True}).json()
    assert (dry["created"], email in emails(tenant), indexed(tenant, email)) == (1, False, [])
    assert tenant.api.post(IMPORT, body).json()["created"] == 1
    assert len(indexed(tenant, email)) == 1
    assert everything(tenant)[email]["name"] == "Ann"


def test_rest_import_dry_run_writes_nothing(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    with in_tenant(tenant.id):
        before = TenantEvent.objects.count()
    row = {"email": address(), "groups": ["New"], "roles": ["new"]}
    assert bring(tenant, row, dry_run=True, create_missing=True).json()["created"] == 1
    with in_tenant(tenant.id):
        assert (EndUser.objects.count(), TenantEvent.objects.count()) == (0, before)
    assert tenant.api.get("/authmgr/groups").json()["total"] == 0


@pytest.mark.parametrize(
    ("body", "member"),
    [
        ({}, "rows"),
        ({"rows": [], "content": "x"}, "rows"),
        ({"rows": [1]}, "rows"),
        ({"rows": [{"email": "a@example.com"}] * 1001}, "rows"),
        ({"content": "email\n", "format": "xml"}, "format"),
        ({"rows": [], "on_conflict": "replace"}, "on_conflict"),
    ],
    ids=range(6),
)
def test_rest_import_rejects_invalid_body(body: dict[str, Any], member: str, tenant: TestTenant) -> None:
    response = tenant.api.post(IMPORT, {"tenant_id": str(tenant.id), **body})
    assert response.status_code == 400
    assert any(name.startswith(member) for name in response.json()["details"])


def test_rest_import_rejects_unusable_content(tenant: TestTenant) -> None:
    body = {"tenant_id": str(tenant.id), "format": "csv"}
    many = "email\n" + "a@example.com\n" * 1001
    for content, says in ((many, "1000 rows"), ("who\nann\n", "unknown: 'who'"), ("email\n" * 200_000, "1 MiB")):
        response = tenant.api.post(IMPORT, {**body, "content": content})
        assert response.status_code in (400, 413)
        assert says in response.json()["message"]


def test_rest_import_limits_created_groups(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    rows = [{"email": address(), "groups": [f"group {row} {n}" for n in range(101)]} for row in range(2)]
    response = bring(tenant, *rows, create_missing=True)
    assert (response.status_code, "200 different" in response.json()["message"]) == (400, True)
    assert tenant.api.get("/authmgr/groups").json()["total"] == 0


def test_rest_import_grants_only_held_permissions(tenant: TestTenant) -> None:
    mark = secrets.token_hex(4)
    strong, plain = f"strong-{mark}", f"plain-{mark}"
    tenant.api.post("/authmgr/roles", {"name": strong, "permissions": ["services:credentials"]})
    tenant.api.post("/authmgr/roles", {"name": plain, "permissions": ["pages:edit"]})
    tenant.api.post("/authmgr/groups", {"name": strong, "roles": [strong]})
    rows = [
        {"email": address(), "roles": [strong]},
        {"email": address(), "groups": [strong]},
        {"email": address(), "roles": [plain]},
    ]
    said = bring(tenant, *rows, api=admin(tenant, "user-manager")).json()
    assert [(fault["line"], fault["field"]) for fault in said["report"]] == [(1, "roles"), (2, "groups")]
    assert "services:credentials" in said["report"][0]["reason"]
    assert bring(tenant, *rows[:2]).json()["created"] == 2


def test_rest_import_with_roles_requires_roles_write(tenant: TestTenant) -> None:
    made = tenant.api.post(
        f"/clientms/tenants/{tenant.id}/clients",
        {"name": "Importer", "type": "confidential", "scopes": ["endusers:read", "endusers:write"]},
    ).json()
    form = f"grant_type=client_credentials&client_id={made['id']}&client_secret={made['client_secret']}"
    response = Api().post("/authmgr/token", raw=form.encode(), content_type="application/x-www-form-urlencoded")
    api = Api(token=response.json()["access_token"])
    rows = [{"email": address(), "roles": ["user"]}, {"email": address(), "groups": ["x"]}, {"email": address()}]
    said = bring(tenant, *rows, api=api, create_missing=True).json()
    assert (said["created"], [fault["reason"] for fault in said["report"]]) == (
        1,
        ["This needs the permission roles:write.", "This needs the permission groups:write."],
    )
    asked = {"tenant_id": str(tenant.id)}
    assert api.post(EXPORT, asked).status_code == 200
    assert api.post(EXPORT, {**asked, "with_hashes": True}).status_code == 403


def test_reader_cannot_export_hashes_or_import(tenant: TestTenant) -> None:
    auditor, person = admin(tenant, "auditor"), tenant.register()
    assert bring(tenant, {"email": address()}, api=auditor).status_code == 403
    asked = {"tenant_id": str(tenant.id), "limit": 500}
    page = auditor.post(EXPORT, asked)
    assert {user["password_hash"] for user in page.json()["users"]} == {None}
    assert auditor.post(EXPORT, {**asked, "with_hashes": True}).status_code == 403
    for api, code in ((tenant.as_user(person), 403), (Api(), 401)):
        assert bring(tenant, {"email": address()}, api=api).status_code == code
        assert api.post(EXPORT, asked).status_code == code


def test_rest_export_pages_can_be_imported(new_tenant: Callable[[], TestTenant]) -> None:
    old, new = new_tenant(), new_tenant()
    people = [old.register() for _ in range(3)]
    bring(old, {"email": "ann@example.com", "groups": ["Staff"], "metadata": {"a": [1]}}, create_missing=True)
    asked: dict[str, Any] = {"tenant_id": str(old.id), "limit": 2, "with_hashes": True}
    pages, cursor = [], None
    while not pages or cursor:
        response = old.api.post(EXPORT, {**asked, "cursor": cursor})
        assert (response.status_code, response.headers["Cache-Control"]) == (200, "no-store")
        pages.append(response.json()["users"])
        cursor = response.json()["next_cursor"]
    assert [len(page) for page in pages] == [2, 2]
    said = bring(new, *pages[0], *pages[1], create_missing=True).json()
    assert (said["created"], said["report"]) == (4, [])
    assert everything(new) == everything(old)
    assert new.sign_in(people[0])["access_token"]
    trail = PlatformEvent.objects.filter(tenant_id=old.id, action="end_users.exported")
    assert [event.details for event in trail] == [{"hashes": True, "rows": 2}] * 2


def test_import_and_export_of_other_tenant_are_rejected(tenant: TestTenant, other_tenant: TestTenant) -> None:
    email = address()
    assert bring(other_tenant, {"email": email}, api=tenant.api).status_code == 403
    assert email not in emails(other_tenant)
    assert tenant.api.post(EXPORT, {"tenant_id": str(other_tenant.id)}).status_code == 403


def test_operator_names_tenant_of_import(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    tenant = new_tenant()
    row = {"email": address()}
    assert bring(tenant, row, api=operator).json()["created"] == 1
    asked = {"tenant_id": str(tenant.id), "limit": 500, "with_hashes": True}
    assert row["email"] in {user["email"] for user in operator.post(EXPORT, asked).json()["users"]}
    assert operator.post(EXPORT, {"tenant_id": "00000000-0000-4000-8000-000000000000"}).status_code == 404


def test_rest_import_query_count_is_constant(tenant: TestTenant) -> None:
    def counted(number: int) -> tuple[int, int]:
        rows = [{"email": address(), "roles": ["user"]} for _ in range(number)]
        with capture_statements() as seen:
            assert bring(tenant, *rows).json()["created"] == number
        return seen.counts

    assert counted(1) == counted(100)
    with capture_statements() as seen:
        tenant.api.post(EXPORT, {"tenant_id": str(tenant.id)})
    assert seen.counts == (3, 1)


def test_rest_import_publishes_webhook_events(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    WebhookTenant.objects.create(tenant_id=tenant.id)
    with in_tenant(tenant.id):
        WebhookEndpoint.objects.create(url="https://example.com/", events=["*"], secret_sealed=b"-")
    bring(tenant, {"email": "ann@example.com", "groups": ["Staff"]}, {"email": "bad"}, create_missing=True)
    bring(tenant, {"email": "ann@example.com", "name": "Ann"}, on_conflict="update")
    with in_tenant(tenant.id):
        heard = list(WebhookMessage.objects.order_by("id").values_list("event", "subject_id"))
        ann = EndUser.objects.get().pk
    assert heard == [
        ("group.created", None),
        ("end_user.created", ann),
        ("group.members_added", None),
        ("import.finished", None),
        ("end_user.updated", ann),
        ("import.finished", None),
    ]


def test_rest_import_is_limited_by_address(tenant: TestTenant) -> None:
    api = Api(token=tenant.api.token)
    codes = [api.post(EXPORT, {"tenant_id": str(tenant.id), "limit": 1}).status_code for _ in range(31)]
    assert codes == [200] * 30 + [429]


@pytest.mark.usefixtures("production_hashes")
def test_import_and_registration_race_creates_one_user(tenant: TestTenant) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from django.db import connections

    email = address()

    def enter(number: int) -> Any:
        try:
            if number % 2:
                return bring(tenant, *({"email": one} for one in (email, address())), api=Api(token=tenant.api.token))
            body = {"tenant_id": str(tenant.id), "client_id": str(tenant.client_id), "email": email}
            return Api().post("/uflow/user/clients/register", {**body, "password": SECRET})
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        responses = list(pool.map(enter, range(6)))
    registered = [response for response in responses if response.status_code == 201]
    imported = [response for response in responses if response.status_code == 200 and response.json()["created"] == 2]
    # An import takes the address of an unused registration over; nothing takes that of an imported user over.
    assert (len(registered), len(imported)) in {(1, 0), (0, 1), (1, 1)}
    with in_tenant(tenant.id):
        assert EndUser.objects.get(email_key=email).self_registered is (not imported)
    assert {response.status_code for response in responses} <= {200, 201, 409}
    assert emails(tenant).count(email) == 1


def test_parallel_imports_are_limited(tenant: TestTenant) -> None:
    # Each waits for an address that another transaction has inserted.
    home, taken, most = tenant, address(), given.WEB_THREADS // 4

    def attempt(_: int) -> int:
        try:
            return int(bring(home, {"email": taken}, api=Api(token=home.api.token)).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(most) as pool:
        with in_tenant(home.id), tenant_atomic(), connections["tenant"].cursor() as cursor:
            EndUser.objects.create(email=taken, email_key=taken, client_id=home.client_id)
            waiting = [pool.submit(attempt, number) for number in range(most)]
            deadline = time.monotonic() + 60
            while waited_for(cursor) < most and time.monotonic() < deadline:
                time.sleep(0.02)
            refused = pool_of_one(lambda: bring(home, {"email": address()}))
        assert {done.result() for done in waiting} == {200}
    assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)
    assert bring(home, {"email": address()}).status_code == 200


def waited_for(cursor: Any) -> int:
    """Return how many transactions wait for this one."""
    cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted AND transactionid = pg_current_xact_id()::xid")
    return int(cursor.fetchone()[0])


def pool_of_one(work: Callable[[], Any]) -> Any:
    """Call it in another thread: this one has entered a tenant."""

    def run() -> Any:
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()
