"""Limits against toll fraud: per user, address, number and tenant, and the alert on a country's conversion."""

import hashlib
from collections import Counter
from functools import partial
from typing import Any

import pytest
from django.utils.timezone import now

from identity_platform.audit.models import TenantEvent
from identity_platform.crypto import keyed_digest
from mfa.sms.models import SmsMessage
from tenants import keys
from tenants.entering.context import in_tenant
from tests.identity_platform.api.private_valkey import Valkey
from tests.mfa.people import TestUser, code_to, messages_to, new_user, some_phone
from tests.mfa.signin.test_races import statuses_of
from tests.mfa.sms.test_phones import request, verify
from tests.world import Api, TestTenant, seconds_left_in_window


@pytest.fixture
def ann(tenant: TestTenant) -> TestUser:
    return new_user(tenant).enrol_phone()


def test_one_message_a_minute(ann: TestUser) -> None:
    assert request(ann).status_code == 200
    over = request(ann)
    assert over.status_code == 429
    assert 40 <= int(over.headers["Retry-After"]) <= 61
    assert len(messages_to(ann.phone)) == 2
    ann.minutes_pass(1.1)
    assert request(ann).status_code == 200


def test_five_messages_an_hour_and_ten_a_day(settings: Any, ann: TestUser) -> None:
    # The day of a number is not that of the user, which the test lets pass.
    settings.SMS_LIMITS = {**settings.SMS_LIMITS, "number_hour": (100, 3600)}
    sent = 0
    for hour in range(3):
        for _ in range(6):
            sent += request(ann).status_code == 200
            ann.minutes_pass(2)
        # The enrollment's message was by a known caller, but unknown callers are counted with everything.
        assert sent == [4, 9, 9][hour]
        ann.minutes_pass(60)
    over = request(ann)
    assert over.status_code == 429
    assert 19 * 3600 < int(over.headers["Retry-After"]) < 24 * 3600


def test_enrolling_a_number_leaves_the_messages_of_its_user(ann: TestUser, other_tenant: TestTenant) -> None:
    # Anyone can begin to enroll a number, also in another tenant.
    attacker = new_user(other_tenant)
    body = {**attacker.named_with_client, "phone_number": ann.phone}
    statuses = []
    for _ in range(6):
        statuses.append(attacker.api.post("/webauthn/sms/beginSetup", body).status_code)
        attacker.minutes_pass(2)
    assert statuses[-1] == 429
    ticket = ann.sign_in().json()["mfa_token"]
    asked = {**ann.named_with_client, "mfa_token": ticket}
    assert Api().post("/webauthn/sms/requestCode", asked).status_code == 200


def test_unknown_callers_leave_messages_of_user(tenant: TestTenant) -> None:
    ann = new_user(tenant)
    token = ann.token()
    ann.enrol_phone(token=token)
    assert request(ann).status_code == 200
    assert request(ann).status_code == 429
    assert request(ann, token=token).status_code == 200
    assert request(ann, token=token).status_code == 429


def test_waiting_login_is_known_caller(ann: TestUser) -> None:
    ticket = ann.sign_in().json()["mfa_token"]
    assert request(ann).status_code == 200
    response = Api().post("/webauthn/sms/requestCode", {**ann.named_with_client, "mfa_token": ticket})
    assert response.status_code == 200
    wrong = Api().post("/webauthn/sms/requestCode", {**ann.named_with_client, "mfa_token": "x" * 43})
    assert wrong.status_code == 401


def test_twenty_messages_an_hour_from_one_address(tenant: TestTenant) -> None:
    api = Api()
    people = [new_user(tenant, api) for _ in range(21)]
    responses = [
        api.post("/webauthn/sms/beginSetup", {**person.named_with_client, "phone_number": some_phone()})
        for person in people
    ]
    assert [response.status_code for response in responses] == [200] * 20 + [429]
    assert int(responses[-1].headers["Retry-After"]) <= 3600
    forged = {"X-Forwarded-For": "203.0.113.9", "X-Real-IP": "203.0.113.9"}
    proof = {"X-Enrollment-Ticket": people[-1].ticket}
    body = {**people[-1].named_with_client, "phone_number": some_phone()}
    assert api.post("/webauthn/sms/beginSetup", body, headers={**forged, **proof}).status_code == 429


def test_tenant_has_daily_budget(settings: Any, new_tenant: Any, tenant: TestTenant) -> None:
    settings.SMS_LIMITS = {**settings.SMS_LIMITS, "tenant_day": (2, 86400)}
    own = new_tenant()
    responses = [begin(new_user(own), some_phone()) for _ in range(3)]
    assert [response.status_code for response in responses] == [200, 200, 429]
    assert 86_000 < int(responses[-1].headers["Retry-After"]) <= 86_401


def begin(person: TestUser, phone: str, *, ticket: bool = True) -> Any:
    """Ask for a code to enrol a phone, by the ticket of the registration or by its window."""
    headers = {"X-Enrollment-Ticket": person.ticket} if ticket else {}
    body = {**person.named_with_client, "phone_number": phone}
    return person.api.post("/webauthn/sms/beginSetup", body, headers=headers)


def test_fifth_of_budget_is_reserved_for_callers_with_proof(settings: Any, new_tenant: Any) -> None:
    own = new_tenant()
    ann = new_user(own).enrol_phone()
    settings.SMS_LIMITS = {**settings.SMS_LIMITS, "tenant_day": (5, 86400)}
    responses = [begin(new_user(own), some_phone(), ticket=False) for _ in range(4)]
    assert [response.status_code for response in responses] == [200, 200, 200, 429]
    assert 86_000 < int(responses[-1].headers["Retry-After"]) <= 86_401
    assert "reserved for callers who prove who they are" in responses[-1].json()["message"]
    assert request(ann).status_code == 429
    ticket = ann.sign_in().json()["mfa_token"]
    assert ann.api.post("/webauthn/sms/requestCode", {**ann.named_with_client, "mfa_token": ticket}).status_code == 200
    spent = begin(new_user(own), some_phone())
    assert (spent.status_code, spent.json()["code"]) == (429, "sms_limit_reached")


@pytest.mark.parametrize("proof", ["ticket", "token"])
def test_enrollment_with_proof_has_no_reserved_budget(settings: Any, new_tenant: Any, proof: str) -> None:
    # Anyone can register and get a ticket; only a phone that is enrolled shows that the reserve protects a user.
    own = new_tenant()
    enrolled = new_user(own).enrol_phone()
    settings.SMS_LIMITS = {**settings.SMS_LIMITS, "tenant_day": (10, 86400)}
    assert [begin(new_user(own), some_phone()).status_code for _ in range(9)] == [200] * 7 + [429] * 2
    ann = new_user(own)
    body = {**ann.named_with_client, "phone_number": some_phone()}
    how = {"token": ann.token()} if proof == "token" else {"headers": {"X-Enrollment-Ticket": ann.ticket}}
    rejected = Api().post("/webauthn/sms/beginSetup", body, **how)
    assert (rejected.status_code, rejected.json()["code"]) == (429, "sms_reserved")
    ticket = enrolled.sign_in().json()["mfa_token"]
    sent = enrolled.api.post("/webauthn/sms/requestCode", {**enrolled.named_with_client, "mfa_token": ticket})
    assert sent.status_code == 200


def lasting_phone() -> str:
    """A number whose windows of an hour and of a day last to the end of the test."""
    for _ in range(1000):
        phone = some_phone()
        digest = keyed_digest(phone, key=keys.platform_key(), purpose="sms number").hex()
        if all(seconds_left_in_window(digest, period) > 60 for period in (3600, 86400)):
            break
    return phone


def test_hourly_limit_per_number_spans_tenants(tenant: TestTenant, other_tenant: TestTenant) -> None:
    phone = lasting_phone()
    tenants = [tenant, other_tenant] * 3
    responses = [begin(new_user(each), phone) for each in tenants]
    assert [response.status_code for response in responses] == [200] * 5 + [429]
    assert 0 < int(responses[-1].headers["Retry-After"]) <= 3600
    assert len(messages_to(phone)) == 5
    assert begin(new_user(tenant), lasting_phone()).status_code == 200


def test_daily_limit_per_number(settings: Any, tenant: TestTenant, other_tenant: TestTenant) -> None:
    settings.SMS_LIMITS = {**settings.SMS_LIMITS, "number_hour": (100, 3600)}
    phone = lasting_phone()
    responses = [begin(new_user(each), phone) for each in [tenant, other_tenant] * 6]
    assert [response.status_code for response in responses] == [200] * 10 + [429] * 2
    assert len(messages_to(phone)) == 10


def test_limit_of_number_does_not_tell_its_owner(tenant: TestTenant, other_tenant: TestTenant) -> None:
    phone = lasting_phone()
    ann = new_user(tenant)
    ann.phone = phone
    for _ in range(5):
        assert begin(new_user(other_tenant), phone).status_code == 200
    responses = [begin(ann, phone)]
    ben = new_user(tenant).enrol_phone()
    for _ in range(4):
        assert begin(new_user(other_tenant), ben.phone).status_code == 200
    responses += [begin(new_user(other_tenant), ben.phone), request(ben)]
    assert {(response.status_code, response.json()["message"]) for response in responses} == {
        (429, "Too many messages. Retry after the time in `Retry-After`.")
    }


def test_calls_without_message_leave_limit_of_number(settings: Any, new_tenant: Any, tenant: TestTenant) -> None:
    settings.SMS_LIMITS = {**settings.SMS_LIMITS, "tenant_day": (1, 86400)}
    full, phone = new_tenant(), lasting_phone()
    assert begin(new_user(full), some_phone()).status_code == 200
    for _ in range(6):
        assert begin(new_user(full), phone).status_code == 429
    settings.SMS_LIMITS = {**settings.SMS_LIMITS, "tenant_day": (1000, 86400)}
    assert begin(new_user(tenant), phone).status_code == 200


def test_parallel_messages_to_number_stop_at_limit(tenant: TestTenant, other_tenant: TestTenant) -> None:
    phone = lasting_phone()
    people = [new_user(each) for each in [tenant, other_tenant] * 8]
    statuses = statuses_of([partial(begin, person, phone) for person in people])
    assert Counter(statuses) == {200: 5, 429: 11}
    assert len(messages_to(phone)) == 5


def test_counters_contain_no_phone_number(settings: Any, tenant: TestTenant, valkey: Valkey) -> None:
    own = {**settings.CACHES["ratelimit"], "LOCATION": valkey.url}
    settings.CACHES = {**settings.CACHES, "ratelimit": own}
    phone = some_phone()
    assert begin(new_user(tenant), phone).status_code == 200
    stored = valkey.client().keys("*")
    assert stored
    unkeyed = {hashlib.sha256(text.encode()).hexdigest() for text in (phone, phone[1:])}
    assert not any(part in key.decode() for key in stored for part in {phone, phone[1:], *unkeyed})


@pytest.mark.parametrize("fault", ["kill", "hang"])
def test_nothing_is_sent_without_counters(settings: Any, ann: TestUser, valkey: Valkey, fault: str) -> None:
    own = {**settings.CACHES["ratelimit"], "LOCATION": valkey.url}
    settings.CACHES = {**settings.CACHES, "ratelimit": own}
    assert request(ann).status_code == 200
    ann.minutes_pass(2)
    getattr(valkey, fault)()
    before = len(messages_to(ann.phone))
    stopped = request(ann)
    assert (stopped.status_code, stopped.json()["error"]) == (503, "Service Unavailable")
    assert stopped.headers["Retry-After"]
    assert len(messages_to(ann.phone)) == before
    # A code that is out already can be verified all the same.
    assert verify(ann, code_to(ann.phone)).status_code == 200


def test_flushed_cache_keeps_budget_of_user(settings: Any, ann: TestUser, valkey: Valkey) -> None:
    own = {**settings.CACHES["ratelimit"], "LOCATION": valkey.url}
    settings.CACHES = {**settings.CACHES, "ratelimit": own}
    assert request(ann).status_code == 200
    valkey.client().flushall()
    assert request(ann).status_code == 429


def alarms(tenant: TestTenant) -> list[dict[str, Any]]:
    with in_tenant(tenant.id):
        return list(TenantEvent.objects.filter(action="sms.conversion_low").values_list("details", flat=True))


def send_unused(tenant: TestTenant, number: int, used: int = 0) -> None:
    """So many messages of half an hour ago, few of which were used."""
    person = new_user(tenant)
    with in_tenant(tenant.id):
        made = [SmsMessage(user_id=person.id, caller="known", country_prefix="49") for _ in range(number)]
        SmsMessage.objects.bulk_create(made)
        SmsMessage.objects.filter(pk__in=[row.pk for row in made[:used]]).update(converted_at=now())
    person.minutes_pass(30)


def test_low_conversion_of_country_alerts_once(new_tenant: Any) -> None:
    own = new_tenant()
    send_unused(own, 30, used=3)
    new_user(own).enrol_phone()
    new_user(own).enrol_phone()
    assert alarms(own) == [{"country_prefix": "49", "sent": 30, "used": 3}]


def test_normal_conversion_of_country_does_not_alert(new_tenant: Any) -> None:
    own = new_tenant()
    send_unused(own, 30, used=15)
    new_user(own).enrol_phone()
    assert alarms(own) == []
