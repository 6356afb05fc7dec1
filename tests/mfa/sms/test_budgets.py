"""What keeps toll fraud out: budgets per user, address and tenant, and the alarm of a country's conversion."""

from typing import Any

import pytest
from django.utils.timezone import now

from identity_platform.audit.models import TenantEvent
from mfa.sms.models import SmsMessage
from tenants.context import in_tenant
from tests.identity_platform.api.private_valkey import Valkey
from tests.mfa.people import Somebody, code_to, messages_to, some_phone, somebody
from tests.mfa.sms.test_phones import request, verify
from tests.world import Api, House


@pytest.fixture
def ann(house: House) -> Somebody:
    return somebody(house).enrol_phone()


def test_one_message_a_minute(ann: Somebody) -> None:
    assert request(ann).status_code == 200
    over = request(ann)
    assert over.status_code == 429
    assert 40 <= int(over.headers["Retry-After"]) <= 61
    assert len(messages_to(ann.phone)) == 2
    ann.minutes_pass(1.1)
    assert request(ann).status_code == 200


def test_five_messages_an_hour_and_ten_a_day(ann: Somebody) -> None:
    sent = 0
    for hour in range(3):
        for _ in range(6):
            sent += request(ann).status_code == 200
            ann.minutes_pass(2)
        # The enrollment's message was by a known caller, but strangers are counted with everything.
        assert sent == [4, 9, 9][hour]
        ann.minutes_pass(60)
    over = request(ann)
    assert over.status_code == 429
    assert 19 * 3600 < int(over.headers["Retry-After"]) < 24 * 3600


def test_strangers_do_not_use_up_the_persons_messages(house: House) -> None:
    ann = somebody(house)
    token = ann.token()
    ann.enrol_phone(token=token)
    assert request(ann).status_code == 200
    assert request(ann).status_code == 429
    assert request(ann, token=token).status_code == 200
    assert request(ann, token=token).status_code == 429


def test_a_login_that_waits_is_a_known_caller(ann: Somebody) -> None:
    ticket = ann.sign_in().json()["mfa_token"]
    assert request(ann).status_code == 200
    answer = Api().post("/webauthn/sms/requestCode", {**ann.named_with_client, "mfa_token": ticket})
    assert answer.status_code == 200
    wrong = Api().post("/webauthn/sms/requestCode", {**ann.named_with_client, "mfa_token": "x" * 43})
    assert wrong.status_code == 401


def test_twenty_messages_an_hour_from_one_address(house: House) -> None:
    door = Api()
    people = [somebody(house, door) for _ in range(21)]
    answers = [
        door.post("/webauthn/sms/beginSetup", {**person.named_with_client, "phone_number": some_phone()})
        for person in people
    ]
    assert [answer.status_code for answer in answers] == [200] * 20 + [429]
    assert int(answers[-1].headers["Retry-After"]) <= 3600
    forged = {"X-Forwarded-For": "203.0.113.9", "X-Real-IP": "203.0.113.9"}
    body = {**people[-1].named_with_client, "phone_number": some_phone()}
    assert door.post("/webauthn/sms/beginSetup", body, headers=forged).status_code == 429


def test_a_daily_budget_for_the_tenant(settings: Any, new_house: Any, house: House) -> None:
    settings.SMS_LIMITS = {**settings.SMS_LIMITS, "tenant_day": (2, 86400)}
    own = new_house()
    people = [somebody(own) for _ in range(3)]
    answers = [
        person.api.post("/webauthn/sms/beginSetup", {**person.named_with_client, "phone_number": some_phone()})
        for person in people
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 86_000 < int(answers[-1].headers["Retry-After"]) <= 86_401


@pytest.mark.parametrize("fault", ["kill", "hang"])
def test_without_its_counters_nothing_is_sent(settings: Any, ann: Somebody, valkey: Valkey, fault: str) -> None:
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


def test_a_flushed_cache_gives_nobody_a_new_budget(settings: Any, ann: Somebody, valkey: Valkey) -> None:
    own = {**settings.CACHES["ratelimit"], "LOCATION": valkey.url}
    settings.CACHES = {**settings.CACHES, "ratelimit": own}
    assert request(ann).status_code == 200
    valkey.client().flushall()
    assert request(ann).status_code == 429


def alarms(house: House) -> list[dict[str, Any]]:
    with in_tenant(house.id):
        return list(TenantEvent.objects.filter(action="sms.conversion_low").values_list("details", flat=True))


def send_unused(house: House, number: int, used: int = 0) -> None:
    """So many messages of half an hour ago, few of which were used."""
    person = somebody(house)
    with in_tenant(house.id):
        made = [SmsMessage(user_id=person.id, caller="known", country_prefix="49") for _ in range(number)]
        SmsMessage.objects.bulk_create(made)
        SmsMessage.objects.filter(pk__in=[row.pk for row in made[:used]]).update(converted_at=now())
    person.minutes_pass(30)


def test_a_country_that_uses_few_of_its_codes_raises_the_alarm_once(new_house: Any) -> None:
    own = new_house()
    send_unused(own, 30, used=3)
    somebody(own).enrol_phone()
    somebody(own).enrol_phone()
    assert alarms(own) == [{"country_prefix": "49", "sent": 30, "used": 3}]


def test_a_country_that_uses_its_codes_raises_none(new_house: Any) -> None:
    own = new_house()
    send_unused(own, 30, used=15)
    somebody(own).enrol_phone()
    assert alarms(own) == []
