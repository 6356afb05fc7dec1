"""Where backup sets are: in a folder (`backup_folders`), or in a bucket (`s3://bucket/prefix`, `backup_buckets`).

A set is a folder, or the objects with a common prefix. It counts once it has its list, which is written last and removed first.
Errors are OSErrors whose text is for operators.
"""

import hashlib
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

LIST: Final = "backup.json"
PREFIX: Final = "platform-"
SCHEME: Final = "s3://"


class SetPlace(ABC):
    """The place of one set, complete or not."""

    # That of the folder, or the last part of the prefix. The key of the set is bound to it.
    name: str

    @abstractmethod
    def read_list(self) -> bytes:
        """Return the list. Raises OSError, FileNotFoundError if there is none."""

    @abstractmethod
    def describe(self, name: str) -> tuple[int, str]:
        """Return size and SHA-256 (hexadecimal) of a file. Raises OSError."""

    @abstractmethod
    def fetched(self, name: str) -> AbstractContextManager[Path]:
        """Yield a path with the content of a file. Raises OSError."""


class NewSet(ABC):
    """A set that is being written."""

    location: SetPlace
    # Files are written here.
    folder: Path

    @abstractmethod
    def store(self, name: str) -> tuple[int, str]:
        """Take a file that is complete in `folder`; return its size and SHA-256. Raises OSError."""

    @abstractmethod
    def finish(self, content: bytes) -> None:
        """Write the list, with which the set is complete. Raises OSError."""


class Storage(ABC):
    """The parent of sets, or a place that is a set itself."""

    @abstractmethod
    def itself(self) -> SetPlace:
        """Return the place as a set."""

    @abstractmethod
    def sets(self) -> list[SetPlace]:
        """Return the complete sets, the newest first; if the place is a set, that one. Raises OSError."""

    @abstractmethod
    def new_set(self, name: str) -> AbstractContextManager[NewSet]:
        """Yield a set to fill. Unless it is finished, nothing of it is left. Raises OSError."""

    @abstractmethod
    def remove(self, location: SetPlace) -> None:
        """Remove a set. Raises OSError."""

    @abstractmethod
    def remove_unfinished(self) -> None:
        """Remove what killed runs have left a day ago or earlier. Raises OSError."""


def digest_of(file: Path) -> tuple[int, str]:
    """Return size and SHA-256 of a file. Raises OSError."""
    with file.open("rb") as source:
        return file.stat().st_size, hashlib.file_digest(source, "sha256").hexdigest()
