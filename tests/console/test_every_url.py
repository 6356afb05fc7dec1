"""All URLs of the console, as everybody who could try them: who may not is refused, other tenants stay shut, no 500."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from identity_platform.audit.models import PlatformEvent
from registry.actions import create_credential, create_service
from registry.models import Service, ServiceCredential
from tenants.models import DatabaseServer, Tenant
from tests.console.every_url import PAGES
from tests.console.staff import Staff, new_auditor, new_operator, new_tenant_admin
from tests.world import House, some_address, statements
from userflow.admins.models import AdminRole, AdminUser
from userflow.clients.models import Client as Application
from userflow.invitations.actions import invite
from userflow.invitations.models import AdminInvitation
from userflow.permissions_catalogue import EVERY_PERMISSION
from userflow.principals import OPERATOR, Principal
from userflow.tokens.signing import key_set

NONSENSE: dict[str, Any] = {"app": "registry", "server": 999_999, "kid": "no-such-key", "role": 999_999}
Ids = dict[str, Any]


@dataclass
class World:
    """Two tenants with the same things in each, and what is the platform's own."""

    a: House
    b: House
    ids_of_a: Ids
    ids_of_b: Ids
    nonsense: Ids


def furnish(house: House) -> Ids:
    service = create_service(tenant_id=house.id, name="Payments", type="payment", base_url="https://a.example.com")
    credential = create_credential(tenant_id=house.id, service_id=service.pk, name="live", secret="s3cret")
    root = Principal(OPERATOR, uuid4(), None, None, None, (), frozenset(EVERY_PERMISSION))
    invitation = invite(by=root, tenant_id=house.id, email=f"{uuid4().hex[:8]}@example.com", kind="admin")
    return {
        "service": service.pk,
        "credential": credential.pk,
        "client": house.client_id,
        "admin": new_tenant_admin(house).id,
        "invitation": invitation.row.pk,
        "tenant": house.id,
        "app": "registry",
        "server": DatabaseServer.objects.get(name="main").pk,
        "kid": key_set().signing_kid,
        "role": AdminRole.objects.get(name="auditor").pk,
    }


@pytest.fixture
def world(new_house: Any) -> World:
    a, b = new_house(), new_house()
    nonsense = {name: NONSENSE.get(name, uuid4()) for name in furnish(a)}
    return World(a, b, furnish_again(a), furnish(b), nonsense)


def furnish_again(house: House) -> Ids:
    Service.objects.filter(tenant_id=house.id).delete()
    return furnish(house)


def patterns(resolver: URLResolver) -> Iterator[URLPattern]:
    for found in resolver.url_patterns:
        if isinstance(found, URLResolver):
            yield from patterns(found)
        else:
            yield found


def urls() -> list[URLPattern]:
    """Every page of the console but the one that answers for paths that are none."""
    (console,) = [each for each in get_resolver().url_patterns if getattr(each, "namespace", None) == "admin"]
    return [each for each in patterns(console) if each.name is not None]


def test_the_table_knows_every_page() -> None:
    named = {str(each.name) for each in urls()}
    assert PAGES.keys() - named == set(), "these pages are gone: take them out of tests/console/every_url.py"


def path_of(name: str, ids: Ids) -> str:
    return reverse(f"admin:{name}", args=[ids[kind] for kind in PAGES[name].of])


def answers(browser: Client, name: str, ids: Ids) -> list[tuple[str, int, str]]:
    """How the page answers to a look and to an empty form, and where it leads."""
    found = []
    for method in ("get", "post"):
        answer = getattr(browser, method)(path_of(name, ids))
        found.append((f"{method} {name}", answer.status_code, answer.headers.get("Location", "")))
    return found


def those_not(allowed: set[int], found: list[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    return [each for each in found if each[1] not in allowed]


def everything_of(house: House) -> list[Any]:
    """What stands about the tenant in the global database; sign-ins of its own people are not among it."""
    mine = {"tenant_id": house.id}
    models = (Service, ServiceCredential, Application, AdminInvitation, AdminUser)
    rows: list[Any] = [list(model.objects.filter(**mine).order_by("pk").values()) for model in models]
    return [*rows, list(Tenant.objects.filter(pk=house.id).values()), PlatformEvent.objects.filter(**mine).count()]


def test_strangers_are_sent_to_the_sign_in(world: World) -> None:
    stranger = Client(REMOTE_ADDR=some_address(), raise_request_exception=False)
    before = everything_of(world.a)
    for name, page in PAGES.items():
        for asked, status, to in answers(stranger, name, world.ids_of_a):
            if page.public:
                assert status < 500, asked
            else:
                assert (status, to.startswith("/admin/login/")) == (302, True), asked
    assert everything_of(world.a) == before


def refused_without_permission(person: Staff, world: World, held: set[str]) -> list[tuple[str, int, str]]:
    wrong = []
    for name, page in PAGES.items():
        shut_out = page.needs and (page.needs not in held or (page.operators and person.tenant_id is not None))
        if shut_out and not page.public:
            wrong += those_not(
                {403, 404} if page.needs == "never" else {403}, answers(person.browser, name, world.ids_of_a)
            )
    return wrong


def test_who_holds_no_permission_is_refused_everywhere(world: World) -> None:
    before = everything_of(world.a)
    operator = new_operator("directory:sync").sign_in().choose(world.a)
    assert refused_without_permission(operator, world, {"directory:sync"}) == []
    admin = new_tenant_admin(world.a, "directory:sync").sign_in()
    assert refused_without_permission(admin, world, {"directory:sync"}) == []
    after = everything_of(world.a)
    # The new admin and its sign-in are what has come.
    assert after[:4] == before[:4]


def test_who_only_reads_changes_nothing(world: World) -> None:
    auditors = new_auditor().sign_in().choose(world.a), new_auditor(world.a).sign_in()
    before = everything_of(world.a)
    held = set(AdminRole.objects.get(name="auditor").permissions)
    for auditor in auditors:
        assert refused_without_permission(auditor, world, held) == []
    assert everything_of(world.a) == before


def test_an_admin_of_a_tenant_reaches_no_page_of_operators(world: World) -> None:
    admin = new_tenant_admin(world.a).sign_in()
    held = set(AdminRole.objects.get(name="tenant-admin").permissions)
    assert refused_without_permission(admin, world, held) == []


def test_another_tenant_is_not_there(world: World) -> None:
    admin = new_tenant_admin(world.a).sign_in()
    operator = new_operator().sign_in().choose(world.a)
    before = everything_of(world.b)
    wrong = []
    for name, page in PAGES.items():
        theirs = {kind for kind in page.of if world.ids_of_a[kind] != world.ids_of_b[kind]}
        if theirs and not page.public:
            wrong += those_not({403, 404}, answers(admin.browser, name, world.ids_of_b))
            if page.within:
                wrong += those_not({404}, answers(operator.browser, name, world.ids_of_b))
    assert wrong == []
    assert everything_of(world.b) == before


def test_a_thing_of_another_tenant_is_not_found_below_ones_own(world: World) -> None:
    admin = new_tenant_admin(world.a).sign_in()
    before = everything_of(world.b)
    mixed = {**world.ids_of_a, "credential": world.ids_of_b["credential"]}
    wrong = []
    for name, page in PAGES.items():
        if page.of == ("service", "credential"):
            wrong += those_not({404}, answers(admin.browser, name, mixed))
    assert wrong == []
    assert everything_of(world.b) == before


def test_what_is_not_there_is_not_found(world: World) -> None:
    operator = new_operator().sign_in().choose(world.a)
    wrong = []
    for name, page in PAGES.items():
        if page.of and page.of != ("app",) and page.needs != "never":
            wrong += those_not({404}, answers(operator.browser, name, world.nonsense))
    assert wrong == []


@pytest.mark.parametrize("tenant_admin", [False, True])
def test_who_may_gets_a_page_and_never_a_fault(world: World, tenant_admin: bool) -> None:
    person = new_tenant_admin(world.a).sign_in() if tenant_admin else new_operator().sign_in().choose(world.a)
    wrong = []
    for name, page in PAGES.items():
        if page.public or page.needs == "never" or (page.operators and tenant_admin):
            continue
        answer = person.get(path_of(name, world.ids_of_a))
        wrong += those_not({200, 302}, [(name, answer.status_code, "")])
    assert wrong == []


def test_forms_that_are_sent_empty_make_no_fault(world: World) -> None:
    wrong = []
    for name, page in PAGES.items():
        if not page.public and page.needs != "never":
            # A new sign-in for each: some of the pages end it.
            operator = new_operator().sign_in().choose(world.a)
            answer = operator.post(path_of(name, world.ids_of_a))
            wrong += those_not({200, 302, 400, 403, 404, 405, 409}, [(name, answer.status_code, "")])
    assert wrong == []


def test_an_operator_without_a_chosen_tenant_chooses_one_first(world: World) -> None:
    operator = new_operator().sign_in()
    with statements() as seen:
        for name, page in PAGES.items():
            if page.within:
                assert operator.get(path_of(name, world.ids_of_a)).status_code == 302, name
    assert connection.in_atomic_block is False
    assert seen.own == []
