"""Fields of a proof in a request body, for every serializer of a request that needs one (`userflow.signin.proofs`)."""

from collections.abc import Mapping
from typing import TypeVar, Unpack

from rest_framework import serializers

from identity_platform.api.errors import MalformedBody
from identity_platform.api.fields import FieldOptions, Text
from identity_platform.api.json_field import JsonObject
from identity_platform.api.parsers import json_object
from identity_platform.api.typed_text import SIX_DIGITS
from userflow.signin.proofs import PROOFS


class SixDigits(Text):
    """A code of exactly six ASCII digits in a string."""

    default_error_messages = {"invalid": "Send six digits in a string."}

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str) or not SIX_DIGITS.fullmatch(data):
            self.fail("invalid")
        return data

    def openapi(self) -> dict[str, object]:
        return {"type": "string", "pattern": "^[0-9]{6}$"}


# base64url of the largest attestation that is read, with room for the other fields of a browser.
LONGEST_RESPONSE = 256 * 1024


class PublicKeyCredential(JsonObject):
    """The result of `PublicKeyCredential.toJSON()` (Level 3 section 5.1): a JSON object, or that object in a string."""

    def __init__(self, **options: Unpack[FieldOptions]) -> None:
        super().__init__(max_bytes=LONGEST_RESPONSE, max_depth=12, **options)

    def to_internal_value(self, data: object) -> dict[str, object]:
        if isinstance(data, str):
            if not data:
                self.fail("invalid")
            try:
                data = json_object(data.encode("utf-8"))
            except (MalformedBody, UnicodeEncodeError):
                self.fail("invalid")
        credential = super().to_internal_value(data)
        if not credential:
            self.fail("invalid")
        return credential

    def openapi(self) -> dict[str, object]:
        example = {"id": "…", "rawId": "…", "type": "public-key", "response": {"clientDataJSON": "…"}}
        return {
            "oneOf": [
                {"type": "object", "additionalProperties": {}, "example": example},
                {
                    "type": "string",
                    "minLength": 2,
                    "description": "The same object as JSON text.",
                },
            ]
        }


class FactorProofFields(serializers.Serializer[object]):
    """The proof by a factor."""

    code = SixDigits(required=False, help_text="Six digits from the authenticator app.")
    backup_code = Text(max_length=64, required=False, help_text="One of the ten backup codes.")
    sms_code = SixDigits(required=False, help_text="Six digits from a text message. End users only.")
    response = PublicKeyCredential(required=False, help_text="Response to the options of /authmgr/step-up/options.")


class ProofFields(FactorProofFields):
    """A request with a proof. The first of its fields that is present counts."""

    current_password = Text(max_length=1024, required=False, help_text="The password of a user without a factor.")
    proof_token = Text(max_length=128, required=False, help_text="Proof token of a step-up; valid once.")


class ProofIn(ProofFields):
    """One of the fields; the first that is present counts."""


Value = TypeVar("Value")


def proof_in(fields: Mapping[str, object], *, but: str = "") -> dict[str, object]:
    """Return the fields of the proof among those of a request, except `but`, which means something else there."""
    return {name: value for name, value in fields.items() if name in PROOFS and name != but}


def without_proof(fields: Mapping[str, Value], *, but: str = "") -> dict[str, Value]:
    """Return the other fields of the request."""
    return {name: value for name, value in fields.items() if name not in PROOFS or name == but}
