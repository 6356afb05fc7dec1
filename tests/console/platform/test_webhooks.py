"""Webhook endpoints of the chosen tenant in the console."""

from uuid import uuid4

import pytest
from django.utils.timezone import now

from identity_platform.audit.models import PlatformEvent, TenantEvent
from tenants.entering.context import in_tenant
from tests.console.platform.conftest import send
from tests.console.staff import Staff, new_operator, new_tenant_admin
from tests.userflow.webhooks.conftest import _consumers_on_this_machine as _consumers_on_this_machine
from tests.userflow.webhooks.conftest import consumer as consumer
from tests.userflow.webhooks.conftest import deliver
from tests.userflow.webhooks.consumer import Consumer
from tests.world import TestTenant, capture_statements
from userflow.events.models import DEAD, DELIVERED, Attempt, WebhookEndpoint, WebhookMessage
from userflow.webhooks.actions import create_endpoint

LIST = "/admin/platform/webhooks/"


@pytest.fixture
def endpoint(home: TestTenant, consumer: Consumer) -> WebhookEndpoint:
    return create_endpoint(tenant_id=home.id, url=consumer.url, events=["*"])[0]


def at(endpoint: WebhookEndpoint, page: str = "") -> str:
    return f"{LIST}{endpoint.pk}/{page}"


def message_at(home: TestTenant, endpoint: WebhookEndpoint) -> str:
    """Return the path of the endpoint's newest message."""
    with in_tenant(home.id):
        newest = WebhookMessage.objects.filter(endpoint_id=endpoint.pk).latest("pk")
    return at(endpoint, f"messages/{newest.pk}/")


def give_up(home: TestTenant, endpoint: WebhookEndpoint, number: int = 1, *, body: str = "{}") -> None:
    failed = Attempt(
        at=now().isoformat(), milliseconds=7, status=500, error="status 500", response="the body of a response"
    )
    with in_tenant(home.id):
        for _ in range(number):
            WebhookMessage.objects.create(
                endpoint_id=endpoint.pk,
                message_id=f"evt_{uuid4().hex}",
                event="group.created",
                body=body,
                attempt_log=[failed],
                status=DEAD,
                attempts=9,
                settled_at=now(),
                last_error="refused",
            )


def test_add_endpoint_shows_secret_once(head: Staff, home: TestTenant, consumer: Consumer) -> None:
    response = send(head, home, f"{LIST}add/", url=consumer.url, events=["end_user.*"], enabled="on")
    secret = response.context["secret"]
    assert secret in response.text
    assert "no-store" in response.headers["Cache-Control"]
    page = head.get(LIST).text
    assert (consumer.url in page, "end_user.*" in page, secret in page) == (True, True, False)
    with in_tenant(home.id):
        written = [*TenantEvent.objects.values_list("details", flat=True), list(PlatformEvent.objects.values())]
    assert secret not in str(written)


def test_add_endpoint_rejects_private_address(head: Staff, home: TestTenant) -> None:
    response = send(head, home, f"{LIST}add/", url="https://10.0.0.1/", events=["*"])
    assert (response.status_code, bool(response.context["form"].errors["url"])) == (400, True)


def test_endpoint_is_edited_disabled_and_deleted(head: Staff, home: TestTenant, endpoint: WebhookEndpoint) -> None:
    body = {"url": endpoint.url, "events": ["group.*"], "description": "Till"}
    assert send(head, home, at(endpoint, "edit/"), **body).status_code == 302
    page = head.get(at(endpoint)).text
    assert ("Till" in page, "disabled: admin" in page, "/test/" in page) == (True, True, False)
    assert send(head, home, at(endpoint, "rotate/")).context["secret"]
    assert send(head, home, at(endpoint, "delete/")).headers["Location"] == LIST
    assert head.get(at(endpoint)).status_code == 404


def test_send_test_delivers_event(head: Staff, home: TestTenant, endpoint: WebhookEndpoint, consumer: Consumer) -> None:
    assert send(head, home, at(endpoint, "test/")).status_code == 302
    deliver()
    assert "delivered" in head.get(at(endpoint)).text
    assert [seen.event["type"] for seen in consumer.seen] == ["webhook.test"]


def test_dead_letters_are_shown_and_replayed(head: Staff, home: TestTenant, endpoint: WebhookEndpoint) -> None:
    give_up(home, endpoint, 60)
    first = head.get(f"{at(endpoint)}?status=dead")
    table = first.context["table"]
    assert (len(table.rows), "refused" in first.text) == (50, True)
    older = next(button.link for button in table.buttons if "before" in button.link)
    assert len(head.get(at(endpoint) + older).context["table"].rows) == 10
    assert send(head, home, at(endpoint, "replay/")).status_code == 302
    assert "60 messages are sent again." in head.get(at(endpoint)).text
    with in_tenant(home.id):
        assert not WebhookMessage.objects.filter(status=DEAD).exists()


def test_message_page_shows_payload_and_attempts(
    head: Staff, home: TestTenant, endpoint: WebhookEndpoint, consumer: Consumer
) -> None:
    consumer.respond = lambda event: (500, {})
    send(head, home, at(endpoint, "test/"))
    deliver()
    page = head.get(message_at(home, endpoint))
    for words in ("&quot;type&quot;: &quot;webhook.test&quot;", "status 500", "webhook-signature", "pending"):
        assert words in page.text
    (attempt,) = page.context["tables"][1].rows
    assert (attempt[1], attempt[3], "no-store" in page.headers["Cache-Control"]) == (500, "status 500", True)
    with in_tenant(home.id):
        viewed = TenantEvent.objects.get(action="webhook.message_viewed")
        assert (viewed.actor_id, viewed.target_id) == (str(head.id), str(endpoint.pk))


def test_payload_requires_permission_to_see_users(home: TestTenant, endpoint: WebhookEndpoint) -> None:
    give_up(home, endpoint, body='{"secret": "of a user"}')
    reader = new_tenant_admin(home, "webhooks:read").sign_in()
    page = reader.get(message_at(home, endpoint)).text
    assert ("of a user" in page, "the body of a response" in page, "endusers:read" in page) == (False, False, True)
    assert "/replay/" not in page


def test_one_message_is_replayed(head: Staff, home: TestTenant, endpoint: WebhookEndpoint, consumer: Consumer) -> None:
    give_up(home, endpoint, 2)
    path = message_at(home, endpoint)
    assert send(head, home, f"{path}replay/").headers["Location"] == path
    assert "The message is sent again." in head.get(path).text
    send(head, home, f"{path}replay/")
    assert "waiting to be sent already" in head.get(path).text
    deliver()
    assert (len(consumer.seen), "delivered" in head.get(path).text) == (1, True)
    with in_tenant(home.id):
        message = WebhookMessage.objects.get(status=DELIVERED)
        assert TenantEvent.objects.get(details__messages=1).details["message_ids"] == [message.message_id]
        assert [each["status"] for each in message.attempt_log] == [500, 204]


def test_messages_are_found_by_event_and_state(head: Staff, home: TestTenant, endpoint: WebhookEndpoint) -> None:
    give_up(home, endpoint, 2)
    send(head, home, at(endpoint, "test/"))
    wanted = (
        ({"event": "webhook.test"}, 1),
        ({"status": "dead"}, 2),
        ({"event": "group.created", "status": "dead"}, 2),
    )
    for query, number in wanted:
        assert len(head.get(at(endpoint), **query).context["table"].rows) == number
    page = head.get(at(endpoint), event="group.created", status="delivered")
    assert "No message matches the filters." in page.text
    assert "Select a valid choice" in head.get(at(endpoint), event="odd").text


def test_message_of_other_endpoint_is_404(
    head: Staff, home: TestTenant, endpoint: WebhookEndpoint, consumer: Consumer
) -> None:
    other = create_endpoint(tenant_id=home.id, url=consumer.url, events=["*"])[0]
    give_up(home, endpoint)
    path = message_at(home, endpoint).replace(str(endpoint.pk), str(other.pk))
    assert [head.get(path).status_code, send(head, home, f"{path}replay/").status_code] == [404, 404]
    assert head.get(at(endpoint, f"messages/{10**30}/")).status_code == 404


def test_form_of_other_tenant_is_rejected(head: Staff, home: TestTenant, endpoint: WebhookEndpoint) -> None:
    response = head.post(at(endpoint, "delete/"), {"form_tenant_id": str(uuid4())})
    assert (response.status_code, head.get(at(endpoint)).status_code) == (409, 200)


def test_endpoints_of_other_tenant_are_404(
    head: Staff, home: TestTenant, endpoint: WebhookEndpoint, tenant: TestTenant
) -> None:
    theirs = new_tenant_admin(tenant).sign_in()
    operator = new_operator().sign_in().choose(tenant)
    for person in (theirs, operator):
        assert endpoint.url not in person.get(LIST).text
        for page in ("", "edit/", "rotate/", "test/", "replay/", "delete/"):
            found = [person.get(at(endpoint, page)), send(person, tenant, at(endpoint, page), url="x")]
            assert {response.status_code for response in found} == {404}
    assert head.get(at(endpoint)).status_code == 200


def test_read_permission_does_not_allow_changes(home: TestTenant, endpoint: WebhookEndpoint) -> None:
    reader = new_tenant_admin(home, "webhooks:read").sign_in()
    assert "/delete/" not in reader.get(at(endpoint)).text
    for path in (f"{LIST}add/", *(at(endpoint, page) for page in ("edit/", "rotate/", "test/", "replay/", "delete/"))):
        assert [reader.get(path).status_code, send(reader, home, path).status_code] == [403, 403]


def test_pages_cost_the_same_with_many_messages(head: Staff, home: TestTenant, endpoint: WebhookEndpoint) -> None:
    give_up(home, endpoint)
    # The page of a message also writes an audit event.
    pages = (LIST, 1), (at(endpoint), 3), (message_at(home, endpoint), 3)
    for number, (path, own) in enumerate(pages):
        give_up(home, endpoint, 10 * number)
        with capture_statements() as seen:
            assert head.get(path).status_code == 200
        # Session, admin user (with the tenant's context), tenant.
        assert seen.counts == (3, own), "\n".join([*seen.default, *seen.tenant])


def test_empty_list_says_what_to_do(head: Staff) -> None:
    assert "No endpoint yet. Add one" in head.get(LIST).text
