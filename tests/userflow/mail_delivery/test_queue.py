"""The queue of mails: nothing is lost with the mail server or the process, and nothing is sent too early or twice."""

import json
import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db import connections
from django.db.models import F
from django.utils.timezone import now

from tenants.entering.context import in_tenant, tenant_atomic
from tenants.entering.target import TENANT_ALIAS
from tests.userflow.mail_delivery.conftest import MailServer
from tests.world import Api, TestTenant, capture_statements
from userflow.mail import queue
from userflow.mail.models import PlatformMail, QueuedMail, TenantMail
from userflow.mail.queue import queue_mail
from userflow.mail_delivery import background, sending
from userflow.mail_delivery.sending import PAUSE, send_due

FORGOT = "/uflow/auth/enduser/password/forgot"


def address() -> str:
    return f"{uuid4().hex[:12]}@example.com"


def queued(tenant: TestTenant, *subjects: str, to: str, **fields: Any) -> None:
    """Queue mails to a user of the tenant; their subjects have these names of the tenant."""
    with in_tenant(tenant.id), tenant_atomic():
        for subject in subjects:
            queue_mail(
                "email_verified", to=to, facts={"issuer": subject}, after=TENANT_ALIAS, **{"limited": False} | fields
            )
    assert background.settle(30)


def waiting(tenant: TestTenant, **conditions: Any) -> list[TenantMail]:
    with in_tenant(tenant.id):
        return list(TenantMail.objects.filter(**conditions).order_by("pk"))


def time_passes(tenant: TestTenant, **time: float) -> None:
    """Let the next attempts of the tenant's mails come nearer, and the pause of the mail server end."""
    PAUSE.end()
    with in_tenant(tenant.id):
        TenantMail.objects.update(next_attempt_at=F("next_attempt_at") - timedelta(**time))


def issuers(server: MailServer, to: str) -> list[str]:
    return [subject.partition(":")[0] for subject in server.subjects(to)]


def test_mails_wait_for_the_mail_server_and_keep_their_order(tenant: TestTenant, mail_server: MailServer) -> None:
    to, other = address(), address()
    names = [f"{number}" for number in range(8)]
    queued(tenant, *names, to=to)
    queued(tenant, "other", to=other)
    assert [mail.status for mail in waiting(tenant, address=to)] == [QueuedMail.PENDING] * 8
    mail_server.start()
    time_passes(tenant, seconds=31)
    assert send_due(tenant.id) is None
    assert (issuers(mail_server, to), issuers(mail_server, other)) == (names, ["other"])
    assert waiting(tenant) == []


def test_request_for_a_link_survives_an_outage(tenant: TestTenant, mail_server: MailServer) -> None:
    person = tenant.register()
    assert background.settle(30)
    assert Api().post(FORGOT, {"email": person.email, "tenant_id": str(tenant.id)}).status_code == 200
    assert background.settle(30)
    assert mail_server.taken == []
    mail_server.start()
    time_passes(tenant, seconds=31)
    send_due(tenant.id)
    assert any("set a new password" in subject for subject in mail_server.subjects(person.email))


def test_log_names_tenant_kind_and_request(
    tenant: TestTenant, mail_server: MailServer, capfd: pytest.CaptureFixture[str]
) -> None:
    person = tenant.register()
    assert background.settle(30)
    with in_tenant(tenant.id):
        TenantMail.objects.all().delete()
    PAUSE.end()
    response = Api().post(FORGOT, {"email": person.email, "tenant_id": str(tenant.id)})
    assert background.settle(30)
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "password_reset" in line]
    facts = json.loads(line)
    assert (facts["event"], facts["tenant"]) == ("mail_not_sent", str(tenant.id))
    assert facts["request_id"] == response["X-Request-ID"]
    assert facts["error"] == "ConnectionRefusedError"
    assert person.email not in line


def test_refused_mail_is_tried_again_and_given_up_in_the_end(tenant: TestTenant, mail_server: MailServer) -> None:
    refused, other = address(), address()
    mail_server.reply_to = lambda to: "550 5.1.1 no such mailbox" if to == refused else ""
    mail_server.start()
    queued(tenant, "first", "second", to=refused)
    queued(tenant, "other", to=other)
    # Another address does not wait, and the second mail does not overtake the first.
    assert issuers(mail_server, other) == ["other"]
    assert [(mail.attempts, mail.last_error) for mail in waiting(tenant)] == [(1, "SMTPRecipientsRefused 550"), (0, "")]
    for _ in range(sending.ATTEMPTS_IF_REFUSED - 1):
        time_passes(tenant, hours=1)
        send_due(tenant.id)
    first, second = waiting(tenant, address=refused)
    assert (first.status, bytes(first.content_sealed)) == (QueuedMail.DEAD, b"")
    assert (second.status, second.attempts) == (QueuedMail.PENDING, 1)


def test_outage_does_not_count_as_refusals(tenant: TestTenant, mail_server: MailServer) -> None:
    to = address()
    queued(tenant, "patient", to=to)
    for _ in range(sending.ATTEMPTS_IF_REFUSED):
        time_passes(tenant, seconds=31)
        send_due(tenant.id)
    mail_server.reply_to = lambda to: "554 5.7.1 relaying denied"
    mail_server.start()
    time_passes(tenant, seconds=31)
    send_due(tenant.id)
    (mail,) = waiting(tenant, address=to)
    assert (mail.status, mail.refusals) == (QueuedMail.PENDING, 1)
    assert 50 < (mail.next_attempt_at - now()).total_seconds() <= 60


def test_greylisted_mail_is_tried_a_minute_later(tenant: TestTenant, mail_server: MailServer) -> None:
    mail_server.reply_to = lambda to: "451 4.7.1 try again later"
    mail_server.start()
    to = address()
    queued(tenant, "late", to=to)
    (mail,) = waiting(tenant, address=to)
    assert 50 < (mail.next_attempt_at - now()).total_seconds() <= 60
    assert PAUSE.seconds() == 0
    mail_server.reply_to = lambda to: ""
    time_passes(tenant, minutes=1)
    send_due(tenant.id)
    assert issuers(mail_server, to) == ["late"]


def test_server_that_hangs_is_asked_once_and_then_left_alone(tenant: TestTenant, mail_server: MailServer) -> None:
    mail_server.silent = True
    mail_server.start()
    queued(tenant, "a", to=address())
    assert PAUSE.seconds() > 0
    queued(tenant, "b", "c", "d", to=address())
    assert [mail.attempts for mail in waiting(tenant)] == [1, 0, 0, 0]


def test_mail_of_a_killed_process_is_taken_up_after_its_lease(tenant: TestTenant, mail_server: MailServer) -> None:
    to = address()
    queued(tenant, "kept", to=to)
    time_passes(tenant, seconds=31)
    with in_tenant(tenant.id):
        assert queue.take_next(TENANT_ALIAS) is not None
    mail_server.start()
    seconds = send_due(tenant.id)
    assert seconds is not None
    assert 50 < seconds <= 60
    assert mail_server.taken == []
    time_passes(tenant, seconds=61)
    send_due(tenant.id)
    assert issuers(mail_server, to) == ["kept"]


def test_processes_that_send_at_once_send_each_mail_once(tenant: TestTenant, mail_server: MailServer) -> None:
    addresses = [address() for _ in range(4)]
    for to in addresses:
        queued(tenant, "1", "2", "3", to=to)
    time_passes(tenant, seconds=31)
    mail_server.start()

    def work() -> None:
        try:
            while send_due(tenant.id) is not None:
                pass
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [issuers(mail_server, to) for to in addresses] == [["1", "2", "3"]] * 4


def test_rolled_back_change_sends_nothing(tenant: TestTenant, mail_server: MailServer) -> None:
    mail_server.start()

    class ChangedMind(Exception):
        pass

    to = address()

    def change() -> None:
        with in_tenant(tenant.id), tenant_atomic():
            queue_mail("email_verified", to=to, facts={"issuer": "x"}, after=TENANT_ALIAS)
            raise ChangedMind

    with pytest.raises(ChangedMind):
        change()
    assert background.settle(30)
    assert (mail_server.subjects(to), waiting(tenant, address=to)) == ([], [])


def test_stored_mail_does_not_show_its_token(tenant: TestTenant, mail_server: MailServer) -> None:
    facts = {"issuer": "Acme", "token": "the-secret-token", "moment": now()}
    to = address()
    with in_tenant(tenant.id):
        queue_mail("email_verified", to=to, facts=facts, after=TENANT_ALIAS)
    assert background.settle(30)
    (mail,) = waiting(tenant, address=to)
    assert b"the-secret-token" not in bytes(mail.content_sealed)
    time_passes(tenant, seconds=31)
    with in_tenant(tenant.id):
        taken = queue.take_next(TENANT_ALIAS)
    assert taken is not None
    assert taken.content.facts == facts


def test_content_opens_for_its_address_only(tenant: TestTenant, mail_server: MailServer) -> None:
    to = address()
    queued(tenant, "secret", to=to)
    with in_tenant(tenant.id):
        TenantMail.objects.filter(address=to).update(address="attacker@example.com")
    mail_server.start()
    time_passes(tenant, seconds=31)
    send_due(tenant.id)
    assert mail_server.taken == []
    (mail,) = waiting(tenant)
    assert (mail.status, mail.last_error) == (QueuedMail.DEAD, "sealed")


def test_expired_mail_is_given_up(tenant: TestTenant, mail_server: MailServer) -> None:
    to = address()
    queued(tenant, "old", to=to)
    with in_tenant(tenant.id):
        TenantMail.objects.update(expires_at=now())
    mail_server.start()
    time_passes(tenant, seconds=31)
    send_due(tenant.id)
    assert mail_server.taken == []
    (mail,) = waiting(tenant, address=to)
    assert (mail.status, mail.last_error, bytes(mail.content_sealed)) == (QueuedMail.DEAD, "expired", b"")


@pytest.mark.parametrize("path", [FORGOT, "/uflow/user/email/resend"])
def test_request_costs_the_same_for_any_address(tenant: TestTenant, mail_server: MailServer, path: str) -> None:
    person = tenant.register()
    assert background.settle(30)
    costs = []
    for email in (person.email, address()):
        with capture_statements() as seen:
            assert Api().post(path, {"email": email, "tenant_id": str(tenant.id)}).status_code == 200
        costs.append(seen.counts)
        assert background.settle(30)
    assert costs[0] == costs[1]


def test_mails_of_admins_wait_in_the_global_database(
    operator: Api, tenant: TestTenant, mail_server: MailServer
) -> None:
    email = tenant.admin.email
    PlatformMail.objects.all().delete()
    assert Api().post("/uflow/auth/admin/password/forgot", {"email": email}).status_code == 200
    assert background.settle(30)
    PAUSE.end()
    (mail,) = PlatformMail.objects.filter(address=email.lower(), is_request=False)
    PlatformMail.objects.update(next_attempt_at=now())
    mail_server.start()
    call_command("deliver_events", once=True)
    assert any("set a new password" in subject for subject in mail_server.subjects(email))
    assert not PlatformMail.objects.filter(pk=mail.pk).exists()


def test_erased_user_gets_no_queued_mail(tenant: TestTenant, mail_server: MailServer) -> None:
    person = tenant.register()
    queued(tenant, "gone", to=person.email)
    assert waiting(tenant, address=person.email)
    body = {"tenant_id": str(tenant.id), "user_id": str(person.id)}
    assert tenant.api.post("/uflow/user/enduser/delete_all", body).status_code == 200
    assert waiting(tenant, address=person.email) == []


def test_deliverer_sends_what_other_processes_left(tenant: TestTenant, mail_server: MailServer) -> None:
    to = address()
    queued(tenant, "left", to=to)
    mail_server.start()
    time_passes(tenant, seconds=31)
    sending.wakeups.wake(str(tenant.id))
    call_command("deliver_events", once=True)
    assert issuers(mail_server, to) == ["left"]


def test_restore_brings_no_mail_back(tenant: TestTenant, mail_server: MailServer) -> None:
    queued(tenant, "old", to=address())
    with in_tenant(tenant.id):
        TenantMail.close_all(now())
    assert waiting(tenant) == []
