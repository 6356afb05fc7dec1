"""Messages are written in the transaction of the change, for subscribed endpoints only."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tenants.entering.context import in_tenant, tenant_atomic
from tenants.models import WebhookTenant
from tests.world import TestTenant
from userflow.events.models import WebhookEndpoint, WebhookMessage
from userflow.events.outbox import publish, publish_for_each


@pytest.fixture
def listening(new_tenant: Callable[[], TestTenant]) -> TestTenant:
    """A tenant with an endpoint for groups and one for everything."""
    home = new_tenant()
    WebhookTenant.objects.create(tenant_id=home.id)
    with in_tenant(home.id):
        for events in (["group.*"], ["*"]):
            WebhookEndpoint.objects.create(url="https://example.com/", events=events, secret_sealed=b"-")
    return home


def messages(home: TestTenant) -> list[Any]:
    with in_tenant(home.id):
        return list(WebhookMessage.objects.order_by("id"))


def test_rollback_publishes_no_message(listening: TestTenant) -> None:
    def fail_late() -> None:
        with tenant_atomic():
            publish("group.created", {"group_id": "1"})
            raise ZeroDivisionError

    with in_tenant(listening.id), pytest.raises(ZeroDivisionError):
        fail_late()
    assert messages(listening) == []


def test_large_metadata_number_can_be_published(listening: TestTenant) -> None:
    person = listening.register()
    own, metadata = f"/uflow/user/enduser/{listening.id}/{person.id}", {"moles": 6.02214076e23}
    assert listening.api.put(own, {"metadata": metadata}).status_code == 200
    assert listening.api.put(own, {"metadata": listening.api.get(own).json()["metadata"]}).status_code == 200
    assert listening.api.delete(own).status_code == 200
    assert orjson.loads(messages(listening)[-1].body)["data"]["metadata"] == metadata


def test_endpoint_gets_one_message_per_event_in_order(listening: TestTenant) -> None:
    with in_tenant(listening.id), tenant_atomic():
        publish("group.created", {"group_id": "1"})
        publish_for_each("end_user.created", ({"user_id": None, "name": str(n)} for n in range(1001)))
    found = messages(listening)
    assert [m.event for m in found[:3]] == ["group.created", "group.created", "end_user.created"]
    assert [orjson.loads(m.body)["data"]["name"] for m in found[2:]] == [str(n) for n in range(1001)]
    assert found[0].message_id == found[1].message_id != found[2].message_id
