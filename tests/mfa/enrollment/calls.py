"""Every call of an enrollment, for the table of `test_ladder`: each entry is a column there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyotp

from tests.mfa.people import TestUser, code_to, some_phone
from tests.mfa.webauthn.passkeys import new_authenticator

# What a call needs to have happened before, with a proof of the user's own (`headers` or `token`); gives the fields that
# the call adds.
Prepare = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class EnrollmentCall:
    """A begin, confirm or finish of one kind of factor."""

    path: str
    kind: str
    prepare: Prepare
    # Enrols a factor of this kind.
    enrol: Callable[..., Any]
    # The specification has a 404 for some calls; the others do not tell unknown users apart.
    unknown: int = 404
    # The general finishRegistration: for the first factor only.
    issues_tokens: bool = False
    needs_client: bool = False


def nothing(person: TestUser, **how: Any) -> dict[str, Any]:
    return {}


def issued_secret(person: TestUser, **how: Any) -> dict[str, Any]:
    begun = person.api.post("/webauthn/totp/beginSetup", person.name, **how)
    assert begun.status_code == 200, begun.content
    secret = begun.json()["secret"]
    return {"secret": secret, "code": pyotp.TOTP(secret).now(), **person.proof_of_enrollment(how)}


def new_phone(person: TestUser, **how: Any) -> dict[str, Any]:
    return {"phone_number": some_phone()}


def sent_code(person: TestUser, **how: Any) -> dict[str, Any]:
    phone = some_phone()
    body = {**person.named_with_client, "phone_number": phone}
    begun = person.api.post("/webauthn/sms/beginSetup", body, **how)
    assert begun.status_code == 200, begun.content
    person.minutes_pass(2)
    return {"phone_number": phone, "code": code_to(phone), **person.proof_of_enrollment(how)}


def new_passkey(person: TestUser, **how: Any) -> dict[str, Any]:
    begun = person.api.post("/webauthn/enduser/beginRegistration", person.name, **how)
    assert begun.status_code == 200, begun.content
    return {"credential": new_authenticator().create(begun.json()), **person.proof_of_enrollment(how)}


def enrol_passkey(person: TestUser, **how: Any) -> TestUser:
    """Begin and finish, in the window of the registration unless a proof is given."""
    body = {**person.name, **new_passkey(person, **how)}
    response = person.api.post("/webauthn/enduser/finishRegistration", body, **how)
    assert response.status_code == 200, response.content
    return person


CALLS: dict[str, EnrollmentCall] = {
    "totp begin": EnrollmentCall("/webauthn/totp/beginSetup", "totp", nothing, TestUser.enrol_totp),
    "totp confirm": EnrollmentCall("/webauthn/totp/confirmSetup", "totp", issued_secret, TestUser.enrol_totp),
    "sms begin": EnrollmentCall(
        "/webauthn/sms/beginSetup", "sms", new_phone, TestUser.enrol_phone, unknown=401, needs_client=True
    ),
    "sms confirm": EnrollmentCall(
        "/webauthn/sms/confirmSetup", "sms", sent_code, TestUser.enrol_phone, unknown=401, needs_client=True
    ),
    "passkey begin": EnrollmentCall("/webauthn/enduser/beginRegistration", "webauthn", nothing, enrol_passkey),
    "passkey finish": EnrollmentCall("/webauthn/enduser/finishRegistration", "webauthn", new_passkey, enrol_passkey),
    "general finish": EnrollmentCall(
        "/webauthn/finishRegistration", "webauthn", new_passkey, enrol_passkey, unknown=401, issues_tokens=True
    ),
}
