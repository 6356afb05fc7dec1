"""What the attacker knows: public values, own secrets, and everything that responses and own mails have shown."""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import pyotp
from django.utils.timezone import now

from userflow.api_part import example_values

ATTACKER_HOST: Final = "attacker.example"
ATTACKER_URL: Final = f"https://{ATTACKER_HOST}/callback"
ATTACKER_PASSWORD: Final = "wrong horse 8 battery"
MOST_VALUES: Final = 8
JWT: Final = re.compile(r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
# Other names of the same thing in requests.
_SAME: Final = {
    "new_password": "password",
    "sms_code": "code",
    "subject_token": "access_token",
    "id_token_hint": "id_token",
    "login_hint": "email",
    "user_ids": "user_id",
    "ids": "id",
    "backup_codes": "backup_code",
}
# What a response names by `id`, by the last word of the path without an id.
_KINDS: Final = {
    "clients": "client_id",
    "groups": "group_id",
    "roles": "role_id",
    "sessions": "session_id",
    "services": "service_id",
    "credentials": "credential_id",
    "configs": "config_id",
    "domains": "domain_id",
    "endpoints": "endpoint_id",
    "invitations": "invitation_id",
    "users": "user_id",
    "list": "user_id",
    "factors": "factor_id",
    "tenants": "tenant_id",
}
# Names whose values prove something; nothing else of them than what was shown, or is the attacker's own, is worth a try.
_PROOFS: Final = frozenset(
    {
        *("code", "backup_code", "proof_token", "mfa_token", "enrollment_ticket", "token", "refresh_token"),
        *("access_token", "client_secret", "secret", "device_code", "request_uri", "response", "credential"),
        "code_verifier",
    }
)


@dataclass
class Knowledge:
    """Values by the name of the field that takes them, newest first."""

    values: dict[str, list[Any]] = field(default_factory=dict)
    news: set[str] = field(default_factory=set)
    # What belongs to the victim, by the name of the field.
    focus: dict[str, str] = field(default_factory=dict)
    # Makes rows of the victims' tenant for ids that the attacker knows none of, since ids are no secrets.
    make_id: Callable[[str, str], str | None] = lambda name, path: None
    authenticators: list[str] = field(default_factory=list)

    def learn(self, name: str, *values: Any, news: bool = False) -> None:
        """Remember values for a field, the last one first."""
        known = self.values.setdefault(name, [])
        for value in values:
            if value in known:
                known.remove(value)
            known.insert(0, value)
            del known[MOST_VALUES:]
        if news:
            self.news.add(name)

    def know(self, name: str, *values: Any) -> None:
        """Remember public values in this order, behind what was learned."""
        self.values.setdefault(name, []).extend(values)

    def has_news(self, name: str) -> bool:
        """Return whether a response has shown a value for the field."""
        return _SAME.get(name, name) in self.news

    def for_field(self, name: str, path: str = "", *, format: str = "") -> list[Any]:
        """Return the values that fit a field, the best first; an id of a row that is made for it if none is known."""
        name = _SAME.get(name, name)
        known = list(self.values.get(name, []))
        if name in self.focus:
            known = [self.focus[name], *(value for value in known if value != self.focus[name])]
        if name == "code":
            known = [*self._codes(), *known]
        if name == "secret":
            known = [*self.authenticators, *known]
        if known:
            return known
        if name in _PROOFS:
            return ["000000"] if name == "code" else ["A" * 43]
        if name.endswith(("_url", "_uri", "_uris", "_origins", "origins", "url")) or format == "uri":
            return [ATTACKER_URL if "origin" not in name else f"https://{ATTACKER_HOST}"]
        if name.endswith("_id") and path:
            made = self.make_id(name, path)
            return [made] if made else []
        return []

    def _codes(self) -> Iterator[str]:
        for secret in self.authenticators:
            totp = pyotp.TOTP(secret)
            yield totp.at(now())
            # The code of the next step is accepted too, and has not been used.
            yield totp.at(now(), counter_offset=1)

    def in_place_of(self, example: Any) -> Any:
        """Return what the attacker sends for a value of the document's examples."""
        if not isinstance(example, str):
            return example
        stands_for = {
            example_values.EMAIL: "email",
            example_values.ADMIN_EMAIL: "email",
            example_values.TENANT_ID: "tenant_id",
            example_values.USER_ID: "user_id",
            example_values.CLIENT_ID: "client_id",
        }
        known = self.for_field(stands_for.get(example, ""))
        return known[0] if known else example

    def read(self, body: object, path: str = "") -> None:
        """Learn from a response, or from another document that the attacker sees."""
        words = [word for word in path.split("?")[0].split("/") if word and not _is_id(word)]
        self._read(body, _KINDS.get(words[-1], "") if words else "")

    def read_page(self, text: str) -> None:
        """Learn the secrets that a page shows: of a new authenticator app, and backup codes."""
        for secret in re.findall(r"(?<![A-Z2-7])[A-Z2-7]{32}(?![A-Z2-7])", text.replace(" ", "")):
            if secret not in self.authenticators:
                self.authenticators.insert(0, secret)
                self.news |= {"code", "secret"}
        if codes := re.findall(r"<(?:li|code)[^>]*>([a-z0-9]{4,6}(?:-[a-z0-9]{4,6}){1,3})</", text):
            self.learn("backup_code", *codes, news=True)

    def _read(self, content: object, id_name: str) -> None:
        if isinstance(content, list):
            for each in content[:MOST_VALUES]:
                self._read(each, id_name)
        if not isinstance(content, dict):
            return
        for name, value in content.items():
            name = _SAME.get(name, name)
            if isinstance(value, dict | list) and name != "backup_code":
                self._read(value, _KINDS.get(name, id_name))
            elif name == "backup_code" and isinstance(value, list):
                self.learn(name, *value, news=True)
            elif not isinstance(value, str) or not value:
                continue
            elif name == "id" and id_name:
                self.learn(id_name, value)
            elif name == "secret" and re.fullmatch(r"[A-Z2-7]{16,64}", value):
                self.authenticators.insert(0, value)
                self.news |= {"code", "secret"}
            elif name in _PROOFS or name.endswith("_id") or name in ("id_token", "user_code"):
                self.learn(name, value, news=name in _PROOFS)


def _is_id(word: str) -> bool:
    return re.fullmatch(r"[0-9a-f-]{36}|\d+", word) is not None


def tokens_in(text: str) -> list[str]:
    """Return the JSON web tokens in a text."""
    return list(dict.fromkeys(JWT.findall(text)))


def claims_of(token: str) -> dict[str, Any]:
    """Return what a token says, unverified; nothing if it is no token."""
    part = token.split(".")[1]
    try:
        content = orjson.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, binascii.Error):
        return {}
    return content if isinstance(content, dict) else {}
