"""Objects read from a directory, and their mapping to users: no tables, no network."""

import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NotRequired, Protocol, TypedDict

from identity_platform.api.email_addresses import AddressInvalid, email_address, email_key
from identity_platform.api.fields import NOT_IN_A_LINE


class AttributeMapping(TypedDict):
    """Directory attributes for a user's address, name and keys of both metadata."""

    email: str
    name: str
    # The user can overwrite these until the next run.
    metadata: dict[str, str]
    # Missing in configurations that were stored before it existed.
    app_metadata: NotRequired[dict[str, str]]


LONGEST_NAME: Final = 255
LONGEST_VALUE: Final = 1000
MOST_ATTRIBUTES: Final = 20
# LDAP (RFC 4512 section 1.4, keystring) and Graph; no options, no paths into nested objects.
ATTRIBUTE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,126}")
METADATA_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
# Passwords and password material: no mapping may copy them.
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
DEFAULT_MAPPING: Final[AttributeMapping] = {
    "email": "mail",
    "name": "displayName",
    "metadata": {},
    "app_metadata": {},
}
_SEPARATORS = re.compile(r"([,=+])")
LONGEST_GROUP: Final = 1000

NO_EMAIL, BAD_EMAIL, TAKEN = "no_email", "email_invalid", "email_taken"
BAD_STATUS, NO_GROUP = "status_unreadable", "group_unknown"
MESSAGES: Final[dict[str, str]] = {
    NO_EMAIL: "The object has no e-mail address in the mapped attribute.",
    BAD_EMAIL: "The platform does not accept the object's e-mail address.",
    TAKEN: "Another user has this e-mail address; users are never merged.",
    BAD_STATUS: "The status of the object cannot be read. Allow the bind user to read it.",
    NO_GROUP: "The configuration maps to a group that the tenant does not have. Create it, or change `groups`.",
}


@dataclass(frozen=True, slots=True)
class DirectoryObject:
    """An object as read from the directory. `attributes` has the first value of each as text, by lower-case name."""

    external_id: str
    attributes: dict[str, str] = field(default_factory=dict)
    enabled: bool = True
    # The object was deleted (in a read of changes).
    removed: bool = False
    # The mapped directory groups of the object, as the configuration spells them.
    groups: frozenset[str] = frozenset()
    problem: str = ""


class DirectoryReader(Protocol):
    """A read of a directory. `full` and `cursor` are final when `pages` has ended."""

    full: bool
    cursor: str

    def pages(self) -> Generator[list[DirectoryObject], None, None]:
        """Yield the objects, a page at a time. Raises DirectoryFailed, DirectoryAddressRejected."""

    def members(self) -> Iterator[tuple[str, set[str]]] | None:
        """Return the groups with their members' ids, or None if the objects name their groups.

        A page at a time: a group comes at least once and may come again.
        """


@dataclass(frozen=True, slots=True)
class Entry:
    """A directory object mapped to the fields of a user. With a `problem` only id and state are valid."""

    external_id: str
    email: str
    email_key: str
    name: str
    metadata: dict[str, str]
    app_metadata: dict[str, str]
    enabled: bool
    removed: bool
    problem: str


def to_entry(directory_object: DirectoryObject, mapping: AttributeMapping) -> Entry:
    """Map the object to the fields of a user."""
    problem, address, address_key = directory_object.problem, "", ""
    raw_address = directory_object.attributes.get(mapping["email"].lower(), "").strip()
    if not problem and not directory_object.removed:
        if not raw_address:
            problem = NO_EMAIL
        else:
            try:
                address = email_address(raw_address)
                address_key = email_key(address)
            except AddressInvalid:
                problem = BAD_EMAIL
    return Entry(
        external_id=directory_object.external_id,
        email=address,
        email_key=address_key,
        name=_line(directory_object.attributes.get(mapping["name"].lower(), ""), LONGEST_NAME),
        metadata=_values(directory_object, mapping["metadata"]),
        app_metadata=_values(directory_object, mapping.get("app_metadata", {})),
        enabled=directory_object.enabled and not directory_object.removed,
        removed=directory_object.removed,
        problem=problem,
    )


def _values(directory_object: DirectoryObject, attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the attributes by the keys that they are mapped to, without empty ones."""
    texts = {
        key: _line(directory_object.attributes.get(name.lower(), ""), LONGEST_VALUE) for key, name in attributes.items()
    }
    return {key: text for key, text in texts.items() if text}


def with_mapped(
    present: Mapping[str, object], values: Mapping[str, str], attributes: Mapping[str, str]
) -> dict[str, object]:
    """Return a user's metadata with the mapped keys replaced by the directory's values; other keys stay."""
    return {**{key: value for key, value in present.items() if key not in attributes}, **values}


def attributes_read(mapping: AttributeMapping) -> list[str]:
    """Return the directory attributes that the mapping needs."""
    return sorted(
        {mapping["email"], mapping["name"], *mapping["metadata"].values(), *mapping.get("app_metadata", {}).values()}
    )


def is_readable(attribute: str) -> bool:
    """Return whether a mapping may name the attribute."""
    return bool(ATTRIBUTE.fullmatch(attribute)) and attribute.lower() not in SECRET_ATTRIBUTES


def group_key(name: str) -> str:
    """Return the key to compare directory groups by: a DN without case and blanks, or an object id.

    Empty for a name that is too long to be a group.
    """
    if len(name) > LONGEST_GROUP:
        return ""
    return "".join(part.strip() for part in _SEPARATORS.split(name.lower()))


def _line(text: str, longest: int) -> str:
    return NOT_IN_A_LINE.sub(" ", text).strip()[:longest].rstrip()
