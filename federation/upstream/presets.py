"""Presets of connections: what an admin enters for a product, and what follows from it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from federation.upstream.clients import DEFAULT_SCOPES, Rules
from federation.upstream.discovery import GITHUB
from userflow.sessions.foreign_tokens import GUID, TENANT_PLACEHOLDER
from userflow.sessions.upstream_assertions import APPLE_AUDIENCE

_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"(?:{_LABEL}\.)+{_LABEL}(?::[0-9]{{1,5}})?")
_PATH_PART: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._~-]{0,99}")
_MICROSOFT: Final = "https://login.microsoftonline.com"


class PresetValueInvalid(ValueError):
    """A value does not have the form that the preset needs. `name` is that of the value."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The value {name} is missing or has another form.")
        self.name = name


@dataclass(frozen=True, slots=True)
class Preset:
    """What is known about a product. `values` are the forms of what an admin enters; they stand in braces in `issuer`."""

    issuer: str
    values: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    discovery_base: str = ""
    rules: Rules = Rules.GENERIC
    scopes: tuple[str, ...] = DEFAULT_SCOPES
    # Whether ID tokens leave out claims that the UserInfo endpoint has.
    reads_userinfo: bool = False
    # Whether assertions (private_key_jwt) are for the token endpoint; all others take the issuer.
    assertion_for_token_endpoint: bool = False


PRESETS: Final[Mapping[str, Preset]] = {
    "google": Preset("https://accounts.google.com", rules=Rules.GOOGLE),
    "entra": Preset(
        f"{_MICROSOFT}/{{directory_id}}/v2.0",
        {"directory_id": GUID},
        rules=Rules.MICROSOFT,
        assertion_for_token_endpoint=True,
    ),
    # Users of any directory, and with `common` those with a personal account.
    "microsoft": Preset(
        f"{_MICROSOFT}/{TENANT_PLACEHOLDER}/v2.0",
        discovery_base=f"{_MICROSOFT}/common/v2.0",
        rules=Rules.MICROSOFT,
        assertion_for_token_endpoint=True,
    ),
    "okta": Preset("https://{domain}", {"domain": _HOST}, reads_userinfo=True, assertion_for_token_endpoint=True),
    "ping": Preset("https://{domain}/{environment_id}/as", {"domain": _HOST, "environment_id": GUID}),
    "keycloak": Preset("https://{domain}/realms/{realm}", {"domain": _HOST, "realm": _PATH_PART}),
    "apple": Preset(APPLE_AUDIENCE, rules=Rules.APPLE, scopes=("openid", "name", "email")),
    "github": Preset(GITHUB, rules=Rules.GITHUB, scopes=("read:user", "user:email")),
}


def issuer_of_preset(preset: Preset, values: Mapping[str, str]) -> str:
    """Return the issuer of a preset with the values that an admin has entered. Raises PresetValueInvalid."""
    issuer = preset.issuer
    for name, form in preset.values.items():
        value = values.get(name, "")
        if not form.fullmatch(value):
            raise PresetValueInvalid(name)
        issuer = issuer.replace(f"{{{name}}}", value.lower() if form is GUID else value)
    return issuer
