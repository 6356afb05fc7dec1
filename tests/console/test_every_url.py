"""Every URL of the console as every kind of user: 403 without permission, 404 for other tenants, never 500."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils.timezone import now

from console.jobs.models import Job
from identity_platform.audit.models import PlatformEvent, TenantEvent
from openid.authorization.consents import grant_consent
from openid.models import Consent
from registry.actions import create_credential, create_service
from registry.models import Service, ServiceCredential
from tenants.entering.context import in_tenant
from tenants.models import DatabaseServer, Tenant, TenantDatabase
from tenants.states import Purpose
from tests.console.every_url import PAGES
from tests.console.staff import Staff, new_auditor, new_operator, new_tenant_admin
from tests.world import TestTenant, capture_statements, new_client, unique_ip
from userflow.accounts.models import AdminRole, AdminUser, EndUser, Group, GroupMembership, Role, RoleBinding
from userflow.accounts.models import Client as Application
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION
from userflow.accounts.principals import OPERATOR, Principal
from userflow.accounts.session_models import EndUserSession
from userflow.directory.actions import create_directory
from userflow.directory.models import DirectoryConfig, DirectoryRun
from userflow.domains.actions import add_domain
from userflow.events.models import WebhookEndpoint, WebhookMessage
from userflow.groups.actions import create_group
from userflow.invitations.actions import invite
from userflow.invitations.models import AdminInvitation, EndUserInvitation
from userflow.roles.actions import create_role
from userflow.sessions.models import TenantSigningKey
from userflow.sessions.signing import rotate_signing_keys, signing_key_status
from userflow.webhooks.actions import create_endpoint, send_test

# A permission that opens no page of the console by itself.
NOTHING_HERE = "end_users_of_the_table:none"
NONSENSE: dict[str, Any] = {
    "app": "registry",
    "server": 999_999,
    "message": 999_999,
    "kid": "no-such-key",
    "tenant_kid": "no-key",
    "role": 999_999,
}
# No user has a factor or a session of this id.
FACTOR = UUID(int=7)
Ids = dict[str, Any]


@dataclass
class World:
    """Two tenants with the same rows in each, and rows of the platform."""

    a: TestTenant
    b: TestTenant
    ids_of_a: Ids
    ids_of_b: Ids
    nonsense: Ids


def spare_key(tenant_id: UUID | None = None) -> str:
    """A signing key that has signed nothing yet, so withdrawing it invalidates no token."""
    waiting = [key.kid for key in signing_key_status(tenant_id) if key.state == "next"]
    return waiting[0] if waiting else rotate_signing_keys(tenant_id)[0].kid


def add_rows(tenant: TestTenant) -> Ids:
    """One row of each kind that a page can be about."""
    service = create_service(tenant_id=tenant.id, name="Payments", type="payment", base_url="https://a.example.com")
    credential = create_credential(tenant_id=tenant.id, service_id=service.pk, name="live", secret="s3cret")
    root = Principal(OPERATOR, uuid4(), None, None, None, (), frozenset(EVERY_PERMISSION), auth_time=now())
    address = f"{uuid4().hex[:8]}@example.com"
    person = tenant.register()
    tenant.sign_in(person)
    group = create_group(tenant_id=tenant.id, by=root, name="Tellers")
    role = create_role(tenant_id=tenant.id, by=root, name="teller")
    endpoint, _ = create_endpoint(tenant_id=tenant.id, url="https://93.184.216.34/hooks", events=["*"])
    entra = {"directory_tenant_id": str(uuid4()), "application_id": str(uuid4()), "secret": "s3cret"}
    directory = create_directory(tenant_id=tenant.id, by=root, kind="entra_id", name="Office", **entra)
    with in_tenant(tenant.id):
        session = EndUserSession.objects.get(user_id=person.id)
        grant_consent(user_id=person.id, client_id=tenant.client_id, scopes=["openid"])
        message = WebhookMessage.objects.get(message_id=send_test(tenant_id=tenant.id, endpoint_id=endpoint.pk))
    return {
        "service": service.pk,
        "credential": credential.pk,
        "client": tenant.client_id,
        "admin": new_tenant_admin(tenant).id,
        "invitation": invite(by=root, tenant_id=tenant.id, email=address, kind="admin").row.pk,
        "tenant": tenant.id,
        "person": person.id,
        "person_session": session.pk,
        "application": tenant.client_id,
        "tenant_kid": spare_key(tenant.id),
        "person_invitation": invite(by=root, tenant_id=tenant.id, email=f"end-{address}", kind="end_user").row.pk,
        "group": group.pk,
        "tenant_role": role.pk,
        "domain": add_domain(tenant_id=tenant.id, by=root, domain=f"{uuid4().hex[:12]}.example").pk,
        "endpoint": endpoint.pk,
        "message": message.pk,
        "directory": directory.config.pk,
        "run": DirectoryRun.objects.create(config=directory.config, tenant_id=tenant.id, trigger="request").pk,
        # Rows of the platform, the same in both.
        "app": "registry",
        "server": DatabaseServer.objects.get(name="main").pk,
        "kid": spare_key(),
        "role": AdminRole.objects.get_or_create(name="support", defaults={"permissions": ["endusers:read"]})[0].pk,
        "job": Job.objects.get_or_create(kind="backup", state="done", params={"slug": "gone"})[0].pk,
        "factor": FACTOR,
        "session": FACTOR,
    }


@pytest.fixture
def world(new_tenant: Any) -> World:
    a, b = new_tenant(), new_tenant()
    ids_of_a = add_rows(a)
    nonsense = {name: NONSENSE.get(name, uuid4()) for name in ids_of_a}
    return World(a, b, ids_of_a, add_rows(b), nonsense)


def patterns(resolver: URLResolver) -> Iterator[URLPattern]:
    for found in resolver.url_patterns:
        if isinstance(found, URLResolver):
            yield from patterns(found)
        else:
            yield found


def urls() -> list[URLPattern]:
    """Return every page of the console except the one that responds to unknown paths."""
    (index,) = get_resolver().url_patterns
    (console,) = [each for each in index.url_patterns if getattr(each, "namespace", None) == "admin"]
    return [each for each in patterns(console) if each.name is not None]


def test_table_lists_every_page() -> None:
    named = {str(each.name) for each in urls()}
    assert named - PAGES.keys() == set(), "enter the new pages in tests/console/every_url.py"
    assert PAGES.keys() - named == set(), "these pages are gone: take them out of tests/console/every_url.py"


def path_of(name: str, ids: Ids) -> str:
    return reverse(f"admin:{name}", args=[ids[kind] for kind in PAGES[name].of])


def answers(browser: Client, name: str, ids: Ids, form_tenant_id: TestTenant) -> list[tuple[str, int, str]]:
    """Return the statuses of GET and of an empty form, and where they redirect."""
    found = []
    for method in ("get", "post"):
        response = getattr(browser, method)(path_of(name, ids), {"form_tenant_id": str(form_tenant_id.id)})
        found.append((f"{method} {name}", response.status_code, response.headers.get("Location", "")))
    return found


def those_not(allowed: set[int], found: list[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    return [each for each in found if each[1] not in allowed]


def everything_of(tenant: TestTenant) -> list[Any]:
    """Return all rows of the tenant, in the global database and in its own."""
    mine = {"tenant_id": tenant.id}
    models = (Service, ServiceCredential, Application, AdminInvitation, AdminUser, DirectoryConfig, DirectoryRun)
    own = (EndUser, EndUserSession, EndUserInvitation, Group, GroupMembership, Role, RoleBinding, WebhookEndpoint)
    own += (Consent, TenantSigningKey)
    rows: list[Any] = [list(model.objects.filter(**mine).order_by("pk").values()) for model in models]
    rows += [list(Tenant.objects.filter(pk=tenant.id).values()), TenantDatabase.objects.get(pk=tenant.id).status]
    with in_tenant(tenant.id, Purpose.INSPECT):
        rows += [list(model.objects.order_by("pk").values()) for model in own]
        # The rejected calls themselves are audited.
        rows += [WebhookMessage.objects.count(), TenantEvent.objects.exclude(action="access.rejected").count()]
    return [*rows, PlatformEvent.objects.filter(**mine).exclude(action="access.rejected").count()]


def test_anonymous_request_redirects_to_sign_in(world: World) -> None:
    anonymous = new_client(REMOTE_ADDR=unique_ip(), raise_request_exception=False)
    before = everything_of(world.a)
    for name, page in PAGES.items():
        for asked, status, to in answers(anonymous, name, world.ids_of_a, world.a):
            if page.public or (page.own and status == 405):
                assert status < 500, asked
            else:
                assert (status, to.startswith("/admin/login/")) == (302, True), (asked, status, to)
    assert everything_of(world.a) == before


def rejected_without_permission(person: Staff, world: World, held: set[str]) -> list[tuple[str, int, str]]:
    operator = person.tenant_id is None
    wrong = []
    for name, page in PAGES.items():
        shut = not page.wants(operator=operator) <= held or (page.operators and not operator)
        if shut and not page.public:
            found = answers(person.browser, name, world.ids_of_a, world.a)
            wrong += those_not({403, 404} if page.needs == "never" else {403}, found)
    return wrong


def test_pages_reject_users_without_permission(world: World) -> None:
    operator = new_operator(NOTHING_HERE).sign_in().choose(world.a)
    admin = new_tenant_admin(world.a, NOTHING_HERE).sign_in()
    before = everything_of(world.a)
    for person in (operator, admin):
        assert rejected_without_permission(person, world, {NOTHING_HERE}) == []
    assert everything_of(world.a) == before


def test_read_permissions_change_nothing(world: World) -> None:
    auditors = new_auditor().sign_in().choose(world.a), new_auditor(world.a).sign_in()
    before = everything_of(world.a)
    held = set(AdminRole.objects.get(name="auditor").permissions)
    for auditor in auditors:
        assert rejected_without_permission(auditor, world, held) == []
    assert everything_of(world.a) == before


@pytest.mark.parametrize(
    "permission",
    [
        "endusers:read",
        pytest.param("sessions:write", marks=pytest.mark.nightly),
        pytest.param("services:read", marks=pytest.mark.nightly),
    ],
)
def test_role_with_one_permission_opens_its_pages_only(world: World, permission: str) -> None:
    for person in (new_operator(permission).sign_in().choose(world.a), new_tenant_admin(world.a, permission).sign_in()):
        before = everything_of(world.a)
        assert rejected_without_permission(person, world, {permission}) == []
        assert everything_of(world.a) == before
        operator = person.tenant_id is None
        for name, page in PAGES.items():
            if page.wants(operator=operator) == {permission} and not (page.operators and not operator):
                status = person.get(path_of(name, world.ids_of_a)).status_code
                assert status in {200, 302, 405}, (name, status)


@pytest.mark.parametrize("role", ["service-manager", "user-manager"])
def test_built_in_roles_open_their_pages_only(world: World, role: str) -> None:
    person = new_tenant_admin(world.a, roles=[role]).sign_in()
    held = set(AdminRole.objects.get(name=role).permissions)
    assert rejected_without_permission(person, world, held) == []


def test_tenant_admin_cannot_open_operator_pages(world: World) -> None:
    admin = new_tenant_admin(world.a).sign_in()
    held = set(AdminRole.objects.get(name="tenant-admin").permissions)
    assert rejected_without_permission(admin, world, held) == []


def test_objects_of_other_tenant_are_404(world: World) -> None:
    admin = new_tenant_admin(world.a).sign_in()
    operator = new_operator().sign_in().choose(world.a)
    before = everything_of(world.b)
    wrong = []
    for name, page in PAGES.items():
        theirs = {kind for kind in page.of if world.ids_of_a[kind] != world.ids_of_b[kind]}
        if theirs and not page.public:
            wrong += those_not({403, 404}, answers(admin.browser, name, world.ids_of_b, world.a))
            if page.within:
                wrong += those_not({404}, answers(operator.browser, name, world.ids_of_b, world.a))
    assert wrong == []
    assert everything_of(world.b) == before


def test_nested_ids_of_other_tenant_are_404(world: World) -> None:
    admin = new_tenant_admin(world.a).sign_in()
    before = everything_of(world.b)
    mixed = {**world.ids_of_a, "credential": world.ids_of_b["credential"]}
    wrong = []
    for name, page in PAGES.items():
        if page.of == ("service", "credential"):
            wrong += those_not({404}, answers(admin.browser, name, mixed, world.a))
    assert wrong == []
    assert everything_of(world.b) == before


def test_unknown_ids_are_404(world: World) -> None:
    operator = new_operator().sign_in().choose(world.a)
    wrong = []
    for name, page in PAGES.items():
        if page.of and page.of != ("app",) and page.needs != "never" and not page.own:
            wrong += those_not({404}, answers(operator.browser, name, world.nonsense, world.a))
    assert wrong == []


@pytest.mark.parametrize("tenant_admin", [False, True])
def test_permitted_pages_never_fail(world: World, tenant_admin: bool) -> None:
    person = new_tenant_admin(world.a).sign_in() if tenant_admin else new_operator().sign_in().choose(world.a)
    wrong = []
    for name, page in PAGES.items():
        if page.public or page.needs == "never" or (page.operators and tenant_admin):
            continue
        response = person.get(path_of(name, world.ids_of_a))
        wrong += those_not({200, 302, 404, 405} if page.own else {200, 302}, [(name, response.status_code, "")])
    assert wrong == []


def test_empty_forms_never_fail(world: World) -> None:
    wrong = []
    operator = new_operator().sign_in().choose(world.a)
    for name, page in PAGES.items():
        if not (page.public or page.works or page.needs == "never"):
            if operator.get("/admin/").status_code != 200:
                # One of the pages has ended the session.
                operator = new_operator().sign_in().choose(world.a)
            response = operator.post(path_of(name, world.ids_of_a), {"form_tenant_id": str(world.a.id)})
            wrong += those_not({200, 302, 400, 403, 404, 405, 409}, [(name, response.status_code, "")])
    assert wrong == []


def test_pages_without_chosen_tenant_redirect_to_chooser(world: World) -> None:
    operator = new_operator().sign_in()
    with capture_statements() as seen:
        for name, page in PAGES.items():
            if page.within:
                response = operator.get(path_of(name, world.ids_of_a))
                assert (response.status_code, response.headers["Location"][:20]) == (302, "/admin/inside/?next="), name
    assert seen.tenant == []
