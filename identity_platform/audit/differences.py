"""Old and new values of a change, for the details of its audit event."""

from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Final

import orjson

# A longer value, such as a set of keys or a hundred addresses, is shown by its digest: the log keeps every event for years.
LONGEST_VALUE: Final = 4_000
# No event has a name: of a client, a tenant, an issuer.
NAMES: Final = frozenset({"name", "issuer_name"})


def differences(before: Mapping[str, object], after: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    """Return `changed`, the sorted fields in `names`, and the old and new values of those that differ.

    Call it with values that are neither secret nor personal data.
    """
    differ = sorted(name for name in names if name not in NAMES and before.get(name) != after.get(name))
    return {
        "changed": sorted(names),
        "before": {name: _shown(before.get(name)) for name in differ},
        "after": {name: _shown(after.get(name)) for name in differ},
    }


def _shown(value: object) -> object:
    encoded = orjson.dumps(value, default=str)
    return value if len(encoded) <= LONGEST_VALUE else f"SHA-256 {sha256(encoded).hexdigest()}"
