"""Special cases of delivery: internal addresses, lost wake-ups, unreachable tenants, slow consumers."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as platform_settings

from identity_platform.api import valkey
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.models import WebhookTenant
from tests.tenants.conftest import run_command
from tests.userflow.mailbox import mails_to
from tests.userflow.webhooks.conftest import ENDPOINTS, Listening, deliver, listen
from tests.userflow.webhooks.consumer import Consumer
from tests.world import Api, TestTenant
from userflow.events.outbox import publish

Deliverers = Callable[[], "subprocess.Popen[str]"]


def tell(home: TestTenant, name: str = "a") -> None:
    with in_tenant(home.id), tenant_atomic():
        publish("group.created", {"name": name})


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://[::ffff:127.0.0.1]/",
        "https://169.254.169.254/latest/meta-data/",
        "https://localhost/",
        "http://93.184.215.14/",
    ],
)
def test_private_webhook_url_is_rejected(new_tenant: Callable[[], TestTenant], settings: Any, url: str) -> None:
    tenant = new_tenant()
    made = tenant.api.post(ENDPOINTS, {"url": "http://127.0.0.1:9/"}).json()
    settings.WEBHOOK_ALLOWED_NETWORKS = []
    refused = tenant.api.post(ENDPOINTS, {"url": url})
    assert (refused.status_code, list(refused.json()["details"])) == (400, ["url"])
    assert tenant.api.patch(f"{ENDPOINTS}/{made['id']}", {"url": url}).status_code == 400
    assert tenant.api.delete(f"{ENDPOINTS}/{made['id']}").status_code == 200


def test_url_that_becomes_private_is_not_called(listening: Listening, consumer: Consumer, settings: Any) -> None:
    settings.WEBHOOK_ALLOWED_NETWORKS = []
    tell(listening.home)
    deliver()
    (waiting,) = listening.messages()
    assert (waiting["status"], waiting["last_error"]) == ("pending", "address not allowed")
    assert consumer.seen == []


def test_redirect_counts_as_failure(listening: Listening, consumer: Consumer) -> None:
    consumer.respond = lambda event: (307, {"Location": consumer.url + "/elsewhere"})
    tell(listening.home)
    deliver()
    assert len(consumer.seen) == 1
    assert listening.messages()[0]["last_error"] == "status 307"


def test_sweep_delivers_after_lost_wakeup(listening: Listening, consumer: Consumer, deliverers: Deliverers) -> None:
    tell(listening.home)
    prefix = platform_settings.CACHES["default"]["KEY_PREFIX"]
    assert valkey.client().delete(f"{prefix}:webhooks:due") == 1
    deliverers()
    consumer.wait_for(1)
    assert consumer.names() == ["a"]


def test_slow_consumer_does_not_delay_others(
    new_tenant: Callable[[], TestTenant], consumer: Consumer, other_consumer: Consumer, deliverers: Deliverers
) -> None:
    slow, quick = new_tenant(), new_tenant()
    consumer.slowness = 2.5
    listen(slow, consumer)
    listen(quick, other_consumer)
    deliverers()
    for number in range(5):
        tell(slow, str(number))
    time.sleep(0.5)
    tell(quick)
    assert other_consumer.wait_for(1)
    assert len(consumer.seen) < 5


@pytest.mark.parametrize("tenants", [1, 6], ids=["one_tenant", "one_host"])
def test_slow_consumers_do_not_take_all_threads(
    tenants: int,
    new_tenant: Callable[[], TestTenant],
    consumer: Consumer,
    deliverers: Deliverers,
) -> None:
    """A deliverer has four threads."""
    slow, quick = [new_tenant() for _ in range(tenants)], new_tenant()
    consumer.slowness = 2.5
    elsewhere = Consumer(host="127.0.0.2")
    for number in range(6):
        listen(slow[number % tenants], consumer)
    listen(quick, elsewhere)
    for home in slow:
        tell(home)
    deliverers()
    while not consumer.at_once:
        time.sleep(0.01)
    tell(quick)
    elsewhere.wait_for(1)
    elsewhere.close()
    assert (len(elsewhere.seen), len(consumer.seen) < 6) == (1, True)
    assert consumer.most_at_once < 4


def test_messages_of_suspended_tenant_wait(listening: Listening, consumer: Consumer, operator: Api) -> None:
    home = listening.home
    path = f"/uflow/admin/tenants/{home.id}"
    tell(home)
    assert operator.patch(path, {"status": "suspended"}).status_code == 200
    deliver()
    assert consumer.seen == []
    assert operator.patch(path, {"status": "active"}).status_code == 200
    deliver()
    assert consumer.names() == ["a"]


def test_admins_get_mail_about_disabled_endpoint(listening: Listening, consumer: Consumer) -> None:
    consumer.respond = lambda event: (410, {})
    tell(listening.home)
    deliver()
    (mail,) = mails_to(listening.home.admin.email, "webhook")
    assert consumer.url in mail.body
    assert "410" in mail.body
    assert listening.secret not in mail.body


def test_tenant_without_endpoints_leaves_sweep_list(listening: Listening) -> None:
    from datetime import timedelta

    from django.utils.timezone import now

    api, listed = listening.home.api, WebhookTenant.objects.filter(pk=listening.home.id)
    for endpoint in api.get(ENDPOINTS).json()["endpoints"]:
        listed.update(touched_at=now() - timedelta(hours=2))
        deliver()
        assert listed.exists()
        api.delete(f"{ENDPOINTS}/{endpoint['id']}")
    listed.update(touched_at=now())
    deliver()
    assert listed.exists()
    listed.update(touched_at=now() - timedelta(hours=2))
    deliver()
    assert not listed.exists()


def test_restored_endpoints_get_messages(listening: Listening, consumer: Consumer, tmp_path: Path) -> None:
    home, file = listening.home, tmp_path / "home.backup"
    run_command("backup_tenant", home.slug, str(file))
    WebhookTenant.objects.filter(pk=home.id).delete()
    run_command("restore_tenant", home.slug, str(file), yes=True)
    home.api.post("/authmgr/groups", {"name": "Readers"})
    deliver()
    assert consumer.names() == ["Readers"]
