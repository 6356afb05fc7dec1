"""The signed list of a backup set: what is in it."""

import base64
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.timezone import now

from identity_platform.crypto import (
    RingKeyMissing,
    SealBroken,
    constant_time_equal,
    keyed_digest,
    unwrap_data_key,
    wrap_data_key,
)
from tenants.backups.backup_storage import LIST, SetPlace
from tenants.errors import BackupUnfit

CLOCK_SKEW = timedelta(minutes=5)
_SIGNATURE = "list of a backup"


@dataclass(frozen=True, slots=True)
class File:
    """A file of a set. `tenant_id` and `slug` are empty for the global database."""

    name: str
    size: int
    sha256: str
    tenant_id: str = ""
    slug: str = ""


@dataclass(frozen=True, slots=True)
class BackupSet:
    """A complete set. `failed` has the reason for each tenant that is not in it, by slug. `key` seals the global database.

    `whole`: it was to have all tenants, not only those that were named.
    """

    location: SetPlace
    started: str
    schema_version: str
    files: tuple[File, ...]
    failed: dict[str, str]
    key: bytes
    whole: bool = True

    @property
    def tenants(self) -> list[File]:
        return [file for file in self.files if file.tenant_id]

    @property
    def is_of_future(self) -> bool:
        """Whether the clock of the machine that wrote it, or of this one, is wrong."""
        return datetime.fromisoformat(self.started) > now() + CLOCK_SKEW

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)


def signed(written: BackupSet) -> bytes:
    """Return the list of a set, with its key wrapped by the key ring and signed with that key."""
    wrapped = wrap_data_key(written.key, owner=_owner(written.location))
    content: dict[str, Any] = {
        "format": 1,
        "started": written.started,
        "schema_version": written.schema_version,
        "whole": written.whole,
        "files": [
            {"name": f.name, "size": f.size, "sha256": f.sha256, "tenant_id": f.tenant_id, "slug": f.slug}
            for f in written.files
        ],
        "failed": written.failed,
        "ring_key_id": wrapped.key_id,
        "wrapped_key": base64.b64encode(wrapped.blob).decode(),
    }
    return json.dumps(content | {"signature": _signature(content, written.key)}, indent=1).encode()


def _signature(content: dict[str, Any], key: bytes) -> str:
    return keyed_digest(json.dumps(content, sort_keys=True), key=key, purpose=_SIGNATURE).hex()


def _owner(location: SetPlace) -> str:
    # The key opens only in a folder of this name: an old set cannot pass as a new one.
    return f"backup {location.name}"


def read(location: SetPlace) -> BackupSet:
    """Read the list of a set. Raises BackupUnfit: it was altered, or its key is not in ENCRYPTION_KEYS."""
    try:
        content = json.loads(location.read_list())
        signature = content.pop("signature")
        key = unwrap_data_key(content["ring_key_id"], base64.b64decode(content["wrapped_key"]), owner=_owner(location))
        if not constant_time_equal(signature, _signature(content, key)):
            raise SealBroken
        files = tuple(File(**file) for file in content["files"])
        about = content["started"], content["schema_version"], files, content["failed"]
        return BackupSet(location, *about, key, whole=content["whole"])
    except RingKeyMissing as problem:
        raise BackupUnfit(f"{location}: {problem}") from problem
    except OSError as problem:
        raise BackupUnfit(f"{location} is no backup set: {problem.strerror} ({LIST}).") from problem
    except (SealBroken, AttributeError, KeyError, TypeError, ValueError) as problem:
        raise BackupUnfit(f"{location}/{LIST} was altered, or the folder was renamed.") from problem
