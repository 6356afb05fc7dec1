"""What directories give, and what becomes of it by a configuration's mapping: a mechanism without tables or network."""

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from identity_platform.api.email_addresses import AddressInvalid, email_address, email_key

LONGEST_NAME: Final = 255
LONGEST_VALUE: Final = 1000
MOST_ATTRIBUTES: Final = 20
# LDAP (RFC 4512 section 1.4, keystring) and Graph; no options, no paths into nested objects.
ATTRIBUTE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,126}")
METADATA_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
# Passwords and what they are made from: no mapping may carry them here.
SECRET_ATTRIBUTES: Final = frozenset(
    name.lower()
    for name in [
        "userPassword",
        "unicodePwd",
        "dBCSPwd",
        "ntPwdHistory",
        "lmPwdHistory",
        "supplementalCredentials",
        "passwordProfile",
        "authPassword",
        "msDS-ManagedPassword",
        "ms-Mcs-AdmPwd",
        "msLAPS-Password",
        "msLAPS-EncryptedPassword",
        "msFVE-RecoveryPassword",
        "krbPrincipalKey",
        "sambaNTPassword",
        "sambaLMPassword",
        "unixUserPassword",
        "msDS-KeyCredentialLink",
    ]
)
DEFAULT_MAPPING: Final[dict[str, Any]] = {"email": "mail", "name": "displayName", "metadata": {}}
_SEPARATORS = re.compile(r"([,=+])")
LONGEST_GROUP: Final = 1000
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

NO_EMAIL, BAD_EMAIL, TAKEN = "no_email", "email_invalid", "email_taken"
BAD_STATUS, NO_GROUP = "status_unreadable", "group_unknown"
SAYS: Final[dict[str, str]] = {
    NO_EMAIL: "The object has no e-mail address in the mapped attribute.",
    BAD_EMAIL: "The object's e-mail address is none that the platform takes.",
    TAKEN: "Another user has this e-mail address; users are never merged.",
    BAD_STATUS: "Whether the object is enabled cannot be read: give the reading user the right to see it.",
    NO_GROUP: "The tenant has no group of a name that the configuration maps to: make it, or change `groups`.",
}


@dataclass(frozen=True, slots=True)
class Found:
    """An object as a directory gave it. `attributes` has the first value of each as text, by lower-case name."""

    external_id: str
    attributes: dict[str, str] = field(default_factory=dict)
    enabled: bool = True
    # The directory says that the object is gone (a read of changes).
    removed: bool = False
    # Directory groups of the configuration that the object is in, by their key there.
    groups: frozenset[str] = frozenset()
    problem: str = ""


class Reading(Protocol):
    """A directory that is being read. `full` and `cursor` are final when `pages` has ended."""

    full: bool
    cursor: str

    def pages(self) -> Generator[list[Found], None, None]:
        """The objects, a page at a time. Raises DirectoryFailed, DirectoryAddressRejected."""

    def members(self) -> Iterator[tuple[str, set[str]]] | None:
        """The groups with their members' ids, of directories that tell them apart; None where the objects tell.

        A page at a time: a group may come more than once, and comes at least once.
        """


@dataclass(frozen=True, slots=True)
class Entry:
    """A person of a directory in our words. With a `problem` only id and state may be relied on."""

    external_id: str
    email: str
    email_key: str
    name: str
    metadata: dict[str, str]
    enabled: bool
    removed: bool
    problem: str


def normalised(found: Found, mapping: dict[str, Any]) -> Entry:
    """The object in our words, by the configuration's mapping."""
    problem, address, key = found.problem, "", ""
    stated = found.attributes.get(str(mapping["email"]).lower(), "").strip()
    if not problem and not found.removed:
        if not stated:
            problem = NO_EMAIL
        else:
            try:
                address = email_address(stated)
                key = email_key(address)
            except AddressInvalid:
                problem = BAD_EMAIL
    named = {
        member: text
        for member, attribute in mapping["metadata"].items()
        if (text := _line(found.attributes.get(attribute.lower(), ""), LONGEST_VALUE))
    }
    return Entry(
        external_id=found.external_id,
        email=address,
        email_key=key,
        name=_line(found.attributes.get(str(mapping["name"]).lower(), ""), LONGEST_NAME),
        metadata=named,
        enabled=found.enabled and not found.removed,
        removed=found.removed,
        problem=problem,
    )


def with_metadata(present: dict[str, Any], entry: Entry, mapping: dict[str, Any]) -> dict[str, Any]:
    """A user's metadata after the directory: mapped members are the directory's, all others stay as they are."""
    kept = {member: value for member, value in present.items() if member not in mapping["metadata"]}
    return {**kept, **entry.metadata}


def attributes_read(mapping: dict[str, Any]) -> list[str]:
    """The attributes of the directory that the mapping needs."""
    return sorted({mapping["email"], mapping["name"], *mapping["metadata"].values()})


def is_readable(attribute: str) -> bool:
    """Whether a mapping may name the attribute."""
    return bool(ATTRIBUTE.fullmatch(attribute)) and attribute.lower() not in SECRET_ATTRIBUTES


def group_key(name: str) -> str:
    """What directory groups are compared by: a DN without regard to case and blanks, or an object id; empty for a name
    that is too long to be one."""
    if len(name) > LONGEST_GROUP:
        return ""
    return "".join(part.strip() for part in _SEPARATORS.split(name.lower()))


def _line(text: str, longest: int) -> str:
    return _CONTROLS.sub(" ", text).strip()[:longest].rstrip()
