"""The tags of the API document: features, in the order of an integration, in one group for each audience."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

# Each group is a part of the document (`document_parts`).
GROUPS: Final = ("Applications", "Management")


class Tag(NamedTuple):
    """A tag as its app states it. Its position in the group is where an integrator needs it; positions leave gaps."""

    group: str
    position: int
    description: str


def grouped(tags: Mapping[str, Tag]) -> Mapping[str, Iterable[str]]:
    """Return the names of the tags of each group, in order."""
    ordered = sorted(tags, key=lambda name: tags[name].position)
    return {group: [name for name in ordered if tags[name].group == group] for group in GROUPS}


def tag_of(path: str, tag_of_prefix: Mapping[str, str]) -> str:
    """Return the tag of the longest matching path prefix."""
    return tag_of_prefix[max((prefix for prefix in tag_of_prefix if path.startswith(prefix)), key=len)]
