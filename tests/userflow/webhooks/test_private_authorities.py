"""A tenant's own certificate authorities apply to its webhooks, jwks_uri and logout tokens, and to no other tenant's."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from identity_platform.audit.models import PlatformEvent
from tests.identity_platform.test_authorities import Authority, new_authority, with_tls
from tests.openid.logout_receiver import LogoutReceiver
from tests.openid.logout_scene import erasure, scene_of
from tests.userflow.authorities import trust
from tests.userflow.clients.keys import assertion, new_key, public_jwk
from tests.userflow.clients.test_assertions import issuer, key_client, post, publisher
from tests.userflow.webhooks.conftest import deliver, listen
from tests.userflow.webhooks.consumer import Consumer
from tests.world import TestTenant


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority()


@pytest.fixture
def tls_consumer(consumer: Consumer, authority: Authority, tmp_path: Path) -> Consumer:
    with_tls(consumer.server, authority, tmp_path)
    consumer.scheme = "https"
    return consumer


@pytest.fixture
def tls_receiver(authority: Authority, tmp_path: Path) -> Iterator[LogoutReceiver]:
    made = LogoutReceiver()
    with_tls(made.server, authority, tmp_path)
    made.scheme = "https"
    yield made
    made.close()


def test_webhooks_trust_the_authority_of_their_tenant_only(
    new_tenant: Callable[[], TestTenant], tls_consumer: Consumer, authority: Authority
) -> None:
    home, other = new_tenant(), new_tenant()
    trust(home, authority.pem)
    for each in (home, other):
        listen(each, tls_consumer, "end_user.created")
        each.register()
    deliver()
    assert [seen.event["data"]["tenant_id"] for seen in tls_consumer.seen] == [str(home.id)]


def test_webhooks_are_not_sent_once_the_authority_is_removed(
    new_tenant: Callable[[], TestTenant], tls_consumer: Consumer, authority: Authority
) -> None:
    home = new_tenant()
    trust(home, authority.pem)
    trust(home, None)
    listen(home, tls_consumer, "end_user.created")
    home.register()
    deliver()
    assert tls_consumer.seen == []


def test_published_keys_trust_the_authority_of_their_tenant_only(
    new_tenant: Callable[[], TestTenant], authority: Authority, tmp_path: Path
) -> None:
    home, other, key = new_tenant(), new_tenant(), new_key()
    trust(home, authority.pem)
    with publisher() as host:
        with_tls(host.server, authority, tmp_path)
        host.publish(public_jwk(key, kid="a"))
        for each, status in ((home, 200), (other, 401)):
            client = key_client(each, jwks_uri=host.url.replace("http:", "https:"))
            assert post(assertion(key, client["id"], issuer(each), headers={"kid": "a"})).status_code == status


def test_logout_tokens_trust_the_authority_of_their_tenant_only(
    new_tenant: Callable[[], TestTenant], tls_receiver: LogoutReceiver, authority: Authority
) -> None:
    home, other = (scene_of(new_tenant(), tls_receiver) for _ in range(2))
    trust(home.tenant, authority.pem)
    for each in (home, other):
        erasure(each)
    deliver()
    assert tls_receiver.accepted() == 1


def test_setting_is_validated_and_bounded(tenant: TestTenant, authority: Authority) -> None:
    for value in ("no pem", "x" * 12_289, authority.pem * 21, ["x"]):
        response = tenant.api.patch(
            f"/uflow/admin/tenants/{tenant.id}/settings", {"settings": {"outbound_authorities": value}}
        )
        assert response.status_code == 400, value
        assert "outbound_authorities" in str(response.json()["details"])


def test_change_is_audited(new_tenant: Callable[[], TestTenant], authority: Authority) -> None:
    home = new_tenant()
    trust(home, authority.pem)
    event = PlatformEvent.objects.filter(action="tenant.updated", tenant_id=home.id).latest("id")
    assert "outbound_authorities" in str(event.details)
