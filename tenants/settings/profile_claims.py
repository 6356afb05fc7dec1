"""The setting `profile_claims`: which keys of a user's metadata become standard claims (OpenID Connect Core section 5.1)."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, cast

from rest_framework.fields import empty

from tenants.settings.setting_fields import DistinctItems, Pattern

METADATA: Final = "metadata"
APP_METADATA: Final = "app_metadata"
# Standard claims of the scope `profile` that the platform has no field for.
PROFILE_CLAIMS: Final = (
    "given_name",
    "family_name",
    "middle_name",
    "nickname",
    "preferred_username",
    "profile",
    "picture",
    "website",
    "gender",
    "birthdate",
    "zoneinfo",
)
# Applications identify users by it, so users must not write it themselves.
_NOT_BY_USERS: Final = "preferred_username"
_ENTRY: Final = re.compile(
    rf"(?P<claim>{'|'.join(PROFILE_CLAIMS)})=(?P<field>{METADATA}|{APP_METADATA})\.(?P<key>[^\x00-\x1f\x7f]{{1,100}})"
)


class Source(NamedTuple):
    """Where the value of a claim is: a field of the user, and a key of it."""

    field: str
    key: str


class ProfileClaim(Pattern):
    """One entry: `given_name=metadata.first_name`."""

    default_error_messages = {"by_users": "{name} must come from app_metadata: users write their metadata themselves."}

    def __init__(self) -> None:
        says = (
            "Send a list of entries such as given_name=metadata.first_name: a claim, =, metadata or app_metadata, a dot and "
            f"the key. The claims are {', '.join(PROFILE_CLAIMS)}."
        )
        claims = "|".join(PROFILE_CLAIMS)
        # Without names of groups, which JSON Schema does not have.
        super().__init__(rf"({claims})=({METADATA}|{APP_METADATA})\.[^\x00-\x1f\x7f]{{1,100}}", says, max_length=150)

    def to_internal_value(self, data: object) -> str:
        entry = super().to_internal_value(data)
        if entry.startswith(f"{_NOT_BY_USERS}={METADATA}."):
            self.fail("by_users", name=_NOT_BY_USERS)
        return entry


class ProfileClaims(DistinctItems):
    """A mapping as a list of entries, each claim once."""

    default_error_messages = {"twice": "Name each claim once: {names}."}

    def __init__(self) -> None:
        super().__init__(ProfileClaim(), most=len(PROFILE_CLAIMS))

    def run_validation(self, data: object = empty) -> list[str]:
        entries = super().run_validation(data)
        claims = [entry.partition("=")[0] for entry in entries]
        if twice := sorted({name for name in claims if claims.count(name) > 1}):
            self.fail("twice", names=", ".join(twice))
        return entries


def profile_claims(tenant_settings: Mapping[str, object]) -> dict[str, Source]:
    """Return the standard claims that the settings of a tenant map, with their sources, without entries of a newer release."""
    matches = map(_ENTRY.fullmatch, cast(list[str], tenant_settings.get("profile_claims") or []))
    return {match["claim"]: Source(match["field"], match["key"]) for match in matches if match is not None}
