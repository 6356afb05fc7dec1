"""Backup sets in a folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from identity_platform.folders import give_to_owner_of_parent, make_folder
from identity_platform.transfer.temporary_folder import temporary_folder
from tenants.backups.backup_storage import LIST, PREFIX, NewSet, SetPlace, Storage, digest_of


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

    location: FolderOfSet
    folder: Path

    def store(self, name: str) -> tuple[int, str]:
        return digest_of(self.folder / name)

    def finish(self, content: bytes) -> None:
        with os.fdopen(os.open(self.folder / LIST, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        _flush(self.folder)
        self.folder.rename(self.location.path)
        # The service removes old sets.
        for path in (self.location.path, *self.location.path.iterdir()):
            give_to_owner_of_parent(path)
        _flush(self.location.path.parent)


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
        return [
            FolderOfSet(list_file.parent) for list_file in sorted(self.path.glob(f"{PREFIX}*/{LIST}"), reverse=True)
        ]

    @contextmanager
    def new_set(self, name: str) -> Iterator[NewFolder]:
        make_folder(self.path)
        with temporary_folder(self.path) as draft:
            new = draft / "new"
            new.mkdir(mode=0o700)
            yield NewFolder(FolderOfSet(self.path / name), new)

    def remove(self, location: SetPlace) -> None:
        # Out of sight first: half a set is no set.
        with temporary_folder(self.path) as discarded:
            (self.path / location.name).rename(discarded / location.name)

    def remove_unfinished(self) -> None:
        # `temporary_folder` has done it.
        pass


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
