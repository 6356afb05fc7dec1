"""Where backup sets are: in a folder, or in a bucket (`s3://bucket/prefix`, see `tenants.backup_buckets`).

A set is a folder, or the objects with a common prefix. It counts once it has its list, which is written last and removed first.
Errors are OSErrors whose text is for operators.
"""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from identity_platform.folders import give_to_owner_of_parent, make_folder
from identity_platform.transfer.temporary_folder import temporary_folder
from tenants.errors import BucketsMissing

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

    place: SetPlace
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
    def remove(self, place: SetPlace) -> None:
        """Remove a set. Raises OSError."""

    @abstractmethod
    def remove_unfinished(self) -> None:
        """Remove what killed runs have left a day ago or earlier. Raises OSError."""


def located(text: str | Path) -> Storage:
    """Return the storage that a command names: a folder or `s3://bucket/prefix`. Raises BucketsMissing."""
    if not str(text).startswith(SCHEME):
        return Folder(Path(text).resolve())
    try:
        from tenants.backup_buckets import Bucket
    except ImportError as missing:
        raise BucketsMissing from missing
    return Bucket(str(text))


def digest_of(file: Path) -> tuple[int, str]:
    """Return size and SHA-256 of a file. Raises OSError."""
    with file.open("rb") as source:
        return file.stat().st_size, hashlib.file_digest(source, "sha256").hexdigest()


# --- folders ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FolderOfSet(SetPlace):
    """A set in a folder of its own."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:  # type: ignore[override]  # read only
        return self.path.name

    def read_list(self) -> bytes:
        return (self.path / LIST).read_bytes()

    def describe(self, name: str) -> tuple[int, str]:
        return digest_of(self.path / name)

    @contextmanager
    def fetched(self, name: str) -> Iterator[Path]:
        yield self.path / name


@dataclass(frozen=True, slots=True)
class NewFolder(NewSet):
    """A set that becomes visible when its folder gets its name."""

    place: FolderOfSet
    folder: Path

    def store(self, name: str) -> tuple[int, str]:
        return digest_of(self.folder / name)

    def finish(self, content: bytes) -> None:
        with os.fdopen(os.open(self.folder / LIST, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        _flush(self.folder)
        self.folder.rename(self.place.path)
        # The service removes old sets.
        for path in (self.place.path, *self.place.path.iterdir()):
            give_to_owner_of_parent(path)
        _flush(self.place.path.parent)


@dataclass(frozen=True, slots=True)
class Folder(Storage):
    """A folder of sets, or the folder of one."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def itself(self) -> FolderOfSet:
        return FolderOfSet(self.path)

    def sets(self) -> list[SetPlace]:
        if (self.path / LIST).exists():
            return [self.itself()]
        return [FolderOfSet(found.parent) for found in sorted(self.path.glob(f"{PREFIX}*/{LIST}"), reverse=True)]

    @contextmanager
    def new_set(self, name: str) -> Iterator[NewFolder]:
        make_folder(self.path)
        with temporary_folder(self.path) as draft:
            new = draft / "new"
            new.mkdir(mode=0o700)
            yield NewFolder(FolderOfSet(self.path / name), new)

    def remove(self, place: SetPlace) -> None:
        # Out of sight first: half a set is no set.
        with temporary_folder(self.path) as discarded:
            (self.path / place.name).rename(discarded / place.name)

    def remove_unfinished(self) -> None:
        # `temporary_folder` has done it.
        pass


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
