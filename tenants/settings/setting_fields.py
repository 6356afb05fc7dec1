"""The kinds of value that settings of a tenant have."""

import re
from typing import Final, Unpack

from rest_framework import serializers

from identity_platform.api.fields import Items, StrictField, Text, TextOptions
from identity_platform.authorities import check_authorities
from identity_platform.environment import ANDROID_APP
from tenants.settings.reserved_claims import RESERVED_CLAIMS

_HOSTNAME = r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
# A page of the tenant's own application. The platform appends the token after a `#`.
_PAGE = r"(https://[a-z0-9.-]+|http://localhost)(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?(\?[A-Za-z0-9._~=&-]*)?"
_ORIGIN = rf"https://[a-z0-9.-]+(:[0-9]{{1,5}})?|http://localhost(:[0-9]{{1,5}})?|{ANDROID_APP}"
_CLAIM = r"[A-Za-z_][A-Za-z0-9_.:/-]*"


class Pattern(Text):
    """A string that matches a regular expression as a whole. `form` is its format in JSON Schema, if it has one."""

    def __init__(self, pattern: str, says: str, *, max_length: int, form: str | None = None) -> None:
        self.pattern = pattern
        self.form = form
        super().__init__(error_messages={"invalid": says}, max_length=max_length)

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str) or re.fullmatch(self.pattern, data) is None:
            self.fail("invalid")
        return data

    def openapi(self) -> dict[str, object]:
        schema: dict[str, object] = {"type": "string", "pattern": f"^(?:{self.pattern})$"}
        return schema | ({"format": self.form} if self.form else {})


class ClaimName(Pattern):
    """The name of a claim that is not reserved (`tenants.settings.reserved_claims`)."""

    default_error_messages = {"reserved": "{name} is registered or set by the platform. Choose another name."}

    def to_internal_value(self, data: object) -> str:
        name = super().to_internal_value(data)
        if name in RESERVED_CLAIMS:
            self.fail("reserved", name=name)
        return name

    def openapi(self) -> dict[str, object]:
        reserved = "|".join(sorted(RESERVED_CLAIMS))
        return {"type": "string", "pattern": f"^(?!(?:{reserved})$){self.pattern}$"}


class Certificates(Text):
    """Certificates in PEM, of authorities."""

    default_error_messages = {"pem": "{says}"}

    def __init__(self, **options: Unpack[TextOptions]) -> None:
        super().__init__(single_line=False, **options)

    def to_internal_value(self, data: object) -> str:
        # PEM files of Windows tools have carriage returns, which other texts may not have.
        text = super().to_internal_value(data.replace("\r\n", "\n") if isinstance(data, str) else data)
        try:
            return check_authorities(text) if text else ""
        except ValueError as problem:
            self.fail("pem", says=str(problem))


class DistinctItems(Items):
    """A JSON array without repeated entries."""

    default_error_messages = {"repeated": "Send each entry once."}

    def run_validation(self, data: object = serializers.empty) -> list[str]:
        value: list[str] = super().run_validation(data)
        if len(set(value)) != len(value):
            self.fail("repeated")
        return value

    def openapi(self) -> dict[str, object]:
        return {**super().openapi(), "uniqueItems": True}


HOSTNAME: Final = Pattern(_HOSTNAME, "Send a domain in lower case, without scheme and port.", max_length=253)
ORIGIN: Final = Pattern(
    _ORIGIN, "Send a list of at most 20 https origins (an Android app: android:apk-key-hash:…).", max_length=300
)
REGION: Final = Pattern(
    r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "Send the name of a region: a-z, 0-9 and dashes.", max_length=63
)
COUNTRY: Final = Pattern(r"[A-Z]{2}", "Send a list of ISO 3166 two-letter codes.", max_length=2)


def claim_names() -> StrictField:
    """Return a field for the keys of a user's metadata that become claims of the same names."""
    says = "Send a list of at most 20 names of claims: letters, digits and _ . : / -."
    return DistinctItems(ClaimName(_CLAIM, says, max_length=100), most=20)


def page_address() -> StrictField:
    """Return a field for the address of a page of the tenant's application."""
    return Pattern(_PAGE, "Send the https address of a page, without a fragment.", form="uri", max_length=2_048)
