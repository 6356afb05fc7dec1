"""What hatchling asks while it builds the package: the packages that it requires."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

EXTRAS = ("embedded", "ldap", "s3", "tracing")
PIN = re.compile(r"^[a-z0-9][^\\#\n]*==[^\\\n]*", re.MULTILINE)


class LockedRequirements(MetadataHookInterface):
    """The package requires exactly the versions that were tested, transitive ones included, as an application may.

    Hashes cannot be part of a package's metadata: docs/installing-the-package.md says how to install with them.
    """

    def update(self, metadata: dict[str, object]) -> None:
        metadata["dependencies"] = self._pins("requirements.txt")
        metadata["optional-dependencies"] = {extra: self._pins(f"requirements/{extra}.txt") for extra in EXTRAS}

    def _pins(self, name: str) -> list[str]:
        pins = PIN.findall((Path(self.root) / name).read_text(encoding="utf-8"))
        return [pin.strip() for pin in pins]
