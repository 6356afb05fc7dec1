"""The senders, against a provider on this machine that speaks their protocol."""

import base64
import json
import time
from typing import Any

import pytest

from mfa.sms.gateway import ConsoleGateway, FileGateway, HttpGateway, NotSent, SmsGateway, TwilioGateway, gateway
from tests.mfa.people import new_user
from tests.mfa.sms.conftest import Provider
from tests.mfa.sms.test_phones import request
from tests.world import TestTenant

MESSAGE = {"to": "+4915112345678", "body": "123456 is your code", "key": "key-1"}


@pytest.fixture
def twilio(settings: Any, provider: Provider) -> TwilioGateway:
    settings.SMS_TWILIO_URL, settings.SMS_TWILIO_FROM = provider.url, "+15005550006"
    settings.SMS_TWILIO_ACCOUNT_SID, settings.SMS_TWILIO_AUTH_TOKEN = "AC123", "secret"
    return TwilioGateway()


@pytest.fixture
def generic(settings: Any, provider: Provider) -> HttpGateway:
    settings.SMS_HTTP_URL, settings.SMS_HTTP_TOKEN = f"{provider.url}/messages", "token"
    return HttpGateway()


def test_twilio_request_follows_its_documentation(twilio: TwilioGateway, provider: Provider) -> None:
    twilio.send(**MESSAGE)
    sent = provider.requests[0]
    assert sent["path"] == "/2010-04-01/Accounts/AC123/Messages.json"
    assert sent["body"] == {"To": MESSAGE["to"], "From": "+15005550006", "Body": MESSAGE["body"]}
    assert sent["headers"]["Authorization"] == f"Basic {base64.b64encode(b'AC123:secret').decode()}"


def test_generic_gateway_gets_json_token_and_idempotency_key(generic: HttpGateway, provider: Provider) -> None:
    generic.send(**MESSAGE)
    sent = provider.requests[0]
    assert (sent["path"], sent["body"]) == ("/messages", {"to": MESSAGE["to"], "body": MESSAGE["body"]})
    assert (sent["headers"]["Authorization"], sent["headers"]["Idempotency-Key"]) == ("Bearer token", '"key-1"')


@pytest.mark.parametrize("answers", [[400], [401], [404], [500], [503], [302], ["cut"]])
def test_twilio_is_not_retried_on_final_or_unknown_outcome(
    twilio: TwilioGateway, provider: Provider, answers: list[Any]
) -> None:
    provider.answers = answers
    with pytest.raises(NotSent):
        twilio.send(**MESSAGE)
    assert len(provider.requests) == 1


def test_twilio_is_retried_after_429(twilio: TwilioGateway, provider: Provider) -> None:
    provider.answers = [429, 429]
    twilio.send(**MESSAGE)
    assert (len(provider.requests), len(provider.delivered)) == (3, 1)


@pytest.mark.parametrize("answers", [[500], [503, 502], ["cut"], ["hang"], ["cut", 500], [429]])
def test_generic_gateway_is_retried_and_sends_once(
    generic: HttpGateway, provider: Provider, answers: list[Any]
) -> None:
    provider.answers = list(answers)
    generic.send(**MESSAGE)
    assert len(provider.requests) == len(answers) + 1
    assert len(provider.delivered) == 1


@pytest.mark.parametrize("answer", [400, 401, 403, 404, 422, 301])
def test_generic_gateway_rejection_is_final(generic: HttpGateway, provider: Provider, answer: int) -> None:
    provider.answers = [answer]
    with pytest.raises(NotSent):
        generic.send(**MESSAGE)
    assert len(provider.requests) == 1


@pytest.mark.quiet_machine
@pytest.mark.parametrize("name", ["twilio", "generic"])
def test_hanging_provider_costs_under_three_seconds(
    request: pytest.FixtureRequest, provider: Provider, name: str
) -> None:
    sender: SmsGateway = request.getfixturevalue(name)
    for _ in range(3):  # again where the machine was busy
        provider.answers = ["hang"] * 5
        began = time.monotonic()
        with pytest.raises(NotSent):
            sender.send(**MESSAGE)
        if (took := time.monotonic() - began) < 3:
            break
    assert took < 3


@pytest.mark.parametrize("name", ["twilio", "generic"])
def test_unreachable_provider_is_503(request: pytest.FixtureRequest, provider: Provider, name: str) -> None:
    sender: SmsGateway = request.getfixturevalue(name)
    provider.server.server_close()
    with pytest.raises(NotSent):
        sender.send(**MESSAGE)


def test_nothing_is_sent_without_backend(settings: Any) -> None:
    settings.SMS_BACKEND = None
    with pytest.raises(NotSent):
        gateway()


def test_file_backend_writes_one_object_per_line(settings: Any, tmp_path: Any) -> None:
    settings.OUTBOX = tmp_path / "outbox"
    FileGateway().send(**MESSAGE)
    FileGateway().send(**{**MESSAGE, "body": "zwei\nZeilen"})
    lines = [json.loads(line) for line in (tmp_path / "outbox" / "sms.jsonl").read_text().splitlines()]
    assert [set(line) for line in lines] == [{"to", "body", "sent_at"}] * 2
    assert lines[1]["body"] == "zwei\nZeilen"
    assert lines[0]["sent_at"].endswith("Z")
    assert (tmp_path / "outbox" / "sms.jsonl").stat().st_mode & 0o777 == 0o600


def test_console_backend_prints_message(capsys: Any) -> None:
    ConsoleGateway().send(**MESSAGE)
    assert "123456 is your code" in capsys.readouterr().out


def test_failed_delivery_is_503_and_allows_next_message(
    settings: Any, tenant: TestTenant, provider: Provider, generic: HttpGateway
) -> None:
    ann = new_user(tenant).enrol_phone()
    settings.SMS_BACKEND = "mfa.sms.gateway.HttpGateway"
    provider.answers = [400]
    failed = request(ann)
    assert (failed.status_code, failed.json()["error"]) == (503, "Service Unavailable")
    assert failed.headers["Retry-After"]
    assert ann.phone not in failed.content.decode()
    assert request(ann).status_code == 200
    assert [message["to"] for message in provider.delivered.values()] == [ann.phone]
