"""What a process does with routes and names that are stale, forged or malformed: the database that they lead to decides."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError

from identity_platform import shared_facts
from tenants import operating_modes
from tenants.addresses.hosts import budget
from tenants.database_servers import servers
from tenants.entering import routes
from tenants.models import DatabaseServer
from tests.openid.sign_in_domains import ApiAt, sign_in_domain
from tests.tenants.faults.test_one_tenant import gone
from tests.tenants.test_global_outage import outage
from tests.userflow.domains.conftest import _dns_server as _dns_server
from tests.userflow.domains.conftest import name_server as name_server
from tests.userflow.domains.dns_server import DnsServer
from tests.userflow.sessions.clients import basic, form, make_client
from tests.world import Api, TestTenant

New = Callable[[], TestTenant]
METADATA = "/.well-known/openid-configuration"


def token_status(client: dict[str, Any]) -> int:
    response = Api().post("/authmgr/token", **form(grant_type="client_credentials"), headers=basic(client))
    return int(response.status_code)


def documents_status(tenant: TestTenant) -> int:
    return int(Api().get(f"/t/{tenant.slug}/jwks").status_code)


def forget_route(tenant: TestTenant) -> None:
    routes._routes.pop(tenant.row.pk, None)


def test_name_that_leads_to_another_tenant_is_read_again(tenant: TestTenant, other_tenant: TestTenant) -> None:
    client = make_client(tenant)
    shared_facts.write(f"client:{client['client_id']}", str(other_tenant.id))
    # The other tenant does not have it. Its own does, which is found with the next request.
    assert token_status(client) == 401
    assert token_status(client) == 200


@pytest.mark.parametrize("value", [None, 5, "no id", [], {"a": 1}])
def test_malformed_name_is_ignored(tenant: TestTenant, value: object) -> None:
    client = make_client(tenant)
    shared_facts.write(f"client:{client['client_id']}", value)
    assert token_status(client) == 200


@pytest.mark.parametrize("value", [None, 5, "x", [], ["x"], ["x", "y", 1, 1], {"a": 1}])
def test_malformed_route_is_ignored(tenant: TestTenant, value: object) -> None:
    forget_route(tenant)
    shared_facts.write(f"route:{tenant.id}", value)
    assert documents_status(tenant) == 200


def test_route_to_another_tenants_database_is_read_again(tenant: TestTenant, other_tenant: TestTenant) -> None:
    routes.route_to(other_tenant.row.pk)
    forget_route(tenant)
    shared_facts.write(f"route:{tenant.id}", [*routes.read_again(other_tenant.row.pk)])
    response = Api().get(f"/t/{tenant.slug}/jwks")
    assert response.status_code == 200
    assert response.content == Api().get(f"/t/{tenant.slug}/jwks").content
    assert response.content != Api().get(f"/t/{other_tenant.slug}/jwks").content
    assert routes.route_to(tenant.row.pk) == routes.read_again(tenant.row.pk)


def test_route_of_an_earlier_placement_is_read_again(tenant: TestTenant) -> None:
    present = routes.read_again(tenant.row.pk)
    forget_route(tenant)
    shared_facts.write(f"route:{tenant.id}", [*present._replace(placement_revision=present.placement_revision - 1)])
    assert documents_status(tenant) == 200
    assert routes.route_to(tenant.row.pk) == present


def test_known_domain_of_a_database_that_is_away_uses_up_no_look_ups(new_tenant: New, name_server: DnsServer) -> None:
    tenant = new_tenant()
    domain = str(sign_in_domain(tenant, name_server)["domain"])
    assert ApiAt(host=domain).get(METADATA).status_code == 200
    budget.clear()
    with gone(tenant):
        assert ApiAt(host=domain).get(METADATA).status_code == 503
        assert domain in budget._known


def test_revision_of_a_server_is_known_to_every_process(tenant: TestTenant) -> None:
    server = DatabaseServer.objects.get(pk=tenant.row.database.server_id)
    operating_modes.forget()
    assert operating_modes.revision_of(server.pk) == server.revision


def test_address_of_a_server_is_shared_by_its_revision(tenant: TestTenant) -> None:
    server = DatabaseServer.objects.get(pk=tenant.row.database.server_id)
    present = servers._stored(server.pk, server.revision)
    with outage():
        shared = servers._stored(server.pk, server.revision)
        with pytest.raises(OperationalError):
            servers._stored(server.pk, server.revision + 1)
    assert (shared.name, shared.url_sealed, shared.admin_url_sealed, shared.detached) == (
        present.name,
        present.url_sealed and bytes(present.url_sealed),
        present.admin_url_sealed and bytes(present.admin_url_sealed),
        False,
    )
