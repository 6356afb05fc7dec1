"""CBOR that would exhaust a decoder is rejected before it is decoded."""

from typing import Any

import cbor2
import pytest

from identity_platform.audit.models import TenantEvent
from mfa.webauthn.ctap2_cbor import NOT_CTAP2, check_authenticator_data, end_of_item
from mfa.webauthn.responses import CeremonyFailed
from tenants.entering.context import in_tenant
from tests.mfa.webauthn.authenticator import AT, UP, UV, b64, unb64
from tests.mfa.webauthn.passkeys import end_users_of, new_authenticator, user_with_passkey
from tests.world import TestTenant

EXTENDED = 0x80


def sharing(levels: int) -> bytes:
    """Arrays of the one before, twice: some bytes for each level, and twice as much each once they are written out."""
    rows = b"".join(b"\xd8\x1c\x82" + (b"\xd8\x1d" + bytes([level])) * 2 for level in range(levels))
    return bytes([0x80 | (levels + 1)]) + b"\xd8\x1c\x82\x01\x02" + rows


# The last three are cut short: an array and a text that are longer than they are, half a number.
ODD_ITEMS = {
    "shared values": sharing(8),
    "a pattern": cbor2.dumps(cbor2.CBORTag(35, "(?i)[a-z]")),
    "a large number": cbor2.dumps(2**80),
    "an array of no said length": b"\x9f\x01\xff",
    "a text of no said length": b"\x7f\x61a\xff",
    "nested too deep": b"\x81" * 8 + b"\x01",
    "a reserved length": b"\x1c",
    "nothing": b"",
    "a long array": b"\x9b" + b"\xff" * 8,
    "a long text": b"\x7b" + b"\xff" * 8 + b"a",
    "half a number": b"\x1a\x00\x00",
}


@pytest.mark.parametrize("item", ODD_ITEMS.values(), ids=ODD_ITEMS.keys())
def test_malformed_cbor_is_rejected(item: bytes) -> None:
    with pytest.raises(CeremonyFailed, match=NOT_CTAP2):
        end_of_item(item)
    if item:
        with pytest.raises(CeremonyFailed, match=NOT_CTAP2):
            check_authenticator_data(bytes(32) + bytes([UP | EXTENDED]) + bytes(4) + item)
        behind_a_credential = bytes(32) + bytes([UP | AT]) + bytes(20) + b"\x00\x02id" + item
        with pytest.raises(CeremonyFailed, match=NOT_CTAP2):
            check_authenticator_data(behind_a_credential)


# Each is longer, or shorter, than the library writes it: a number in two bytes that fits into one, half a float.
@pytest.mark.parametrize("key", ["a1011802", "a101f93c00", "a1590001aa01"])
def test_ambiguously_encoded_key_is_rejected(key: str) -> None:
    head = bytes(32) + bytes([UP | AT | EXTENDED]) + bytes(20) + b"\x00\x02id"
    check_authenticator_data(head + cbor2.dumps({1: 2}) + cbor2.dumps({}))
    with pytest.raises(CeremonyFailed, match=NOT_CTAP2):
        check_authenticator_data(head + bytes.fromhex(key) + cbor2.dumps({}))


@pytest.mark.parametrize(
    "value", [0, -1, 2**64 - 1, 1.5, True, None, "é" * 300, b"x" * 70_000, [], {}, {"a": [{1: [b"", 1.5]}]}, [1] * 300]
)
def test_valid_cbor_is_read_to_its_end(value: Any) -> None:
    item = cbor2.dumps(value)
    assert end_of_item(item) == end_of_item(item + b"\x01") == len(item)


def test_assertion_with_shared_values_is_rejected(tenant: TestTenant) -> None:
    person, authenticator = user_with_passkey(tenant)
    home = end_users_of(tenant)
    response = authenticator.get(home.options(person), flags=UP | UV | EXTENDED)
    data = unb64(response["response"]["authenticatorData"])
    response["response"]["authenticatorData"] = b64(data + sharing(8))
    assert home.finish_authentication(person, response).status_code == 401
    with in_tenant(tenant.id):
        refused = TenantEvent.objects.filter(target_id=str(person.id), action="factor.refused")
        assert refused.get().details["reason"] == NOT_CTAP2


@pytest.mark.parametrize("inside", [True, False], ids=["in the authenticator data", "in the statement"])
def test_registration_with_shared_values_is_rejected(tenant: TestTenant, inside: bool) -> None:
    person = tenant.register()
    api, home = tenant.as_user(person), end_users_of(tenant)
    credential = new_authenticator().create(home.begin_registration(api, person).json(), attestation="none")
    found = cbor2.loads(unb64(credential["response"]["attestationObject"]))
    head, flags, rest = found["authData"][:32], found["authData"][32], found["authData"][33:]
    data = head + bytes([flags | EXTENDED]) + rest + sharing(8) if inside else found["authData"]
    statement = b"\xa0" if inside else b"\xa1\x61x" + sharing(8)
    written = b"\xa3\x63fmt\x64none\x67attStmt" + statement + b"\x68authData" + cbor2.dumps(data)
    credential["response"]["attestationObject"] = b64(written)
    assert home.finish_registration(api, person, credential).status_code == 400
    with in_tenant(tenant.id):
        refused = TenantEvent.objects.filter(target_id=str(person.id), action="factor.enrollment_refused")
        assert refused.get().details["reason"] == NOT_CTAP2
