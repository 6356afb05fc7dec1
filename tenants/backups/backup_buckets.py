"""Backup sets in a bucket of Amazon S3 or a compatible storage. The only module that imports obstore (requirements/s3.txt).

Files are uploaded in parts of 16 MiB with SHA-256, which the storage verifies, and the parts of a failed upload are removed.
Reading verifies the SHA-256 of the set's own list, which does not depend on the storage. Responses 5xx and lost connections are
retried with growing pauses.
"""

import errno
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import obstore
from django.conf import settings
from django.utils.timezone import now
from obstore.exceptions import BaseError, PermissionDeniedError
from obstore.store import S3Store

from identity_platform.transfer.temporary_folder import temporary_folder
from tenants.backups.backup_storage import LIST, PREFIX, SCHEME, NewSet, SetPlace, Storage, digest_of

PART_BYTES: Final = 16 * 1024 * 1024
# Uploads of several tenants go on at the same time.
PARTS_AT_ONCE: Final = 4
# A longer gap without a new file means that its process is gone.
ABANDONED: Final = timedelta(days=1)
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3} [\w ]+)")
_WORDS: Final = {
    "NoSuchBucket": "The bucket does not exist.",
    "AccessDenied": "The storage denies access: the key lacks a permission (list, read, write or delete).",
    "InvalidAccessKeyId": "The storage does not know the key: check AWS_ACCESS_KEY_ID.",
    "SignatureDoesNotMatch": "The storage rejects the signature: check AWS_SECRET_ACCESS_KEY and AWS_REGION.",
}


@contextmanager
def _errors() -> Iterator[None]:
    """Raise OSError with one line for operators."""
    try:
        yield
    except (BaseError, FileNotFoundError) as problem:
        code = errno.ENOENT if _code_of(problem) in ("", "NoSuchKey") else errno.EIO
        if isinstance(problem, FileNotFoundError) and code == errno.ENOENT:
            raise FileNotFoundError(errno.ENOENT, "No such file") from problem
        raise OSError(errno.EIO, _line(problem)) from problem


def _code_of(problem: Exception) -> str:
    match = _CODE.search(str(problem))
    return match[1] if match else ""


def _line(problem: Exception) -> str:
    code, text = _code_of(problem), str(problem)
    if code in _WORDS:
        return _WORDS[code]
    if isinstance(problem, PermissionDeniedError):
        # The response to HEAD has no code.
        return _WORDS["AccessDenied"]
    status = _STATUS.search(text)
    if status:
        return f"The storage responds {status[1].strip()}{f' ({code})' if code else ''}."
    if "error sending request" in text or "HTTP error" in text or "timed out" in text:
        return "The storage cannot be reached: check AWS_ENDPOINT_URL, AWS_REGION and the network."
    return f"The storage failed ({type(problem).__name__})."


def _store(bucket: str) -> S3Store:
    given = {
        "aws_access_key_id": settings.AWS_ACCESS_KEY_ID,
        "aws_secret_access_key": settings.AWS_SECRET_ACCESS_KEY,
        "aws_session_token": settings.AWS_SESSION_TOKEN,
        "aws_endpoint": settings.AWS_ENDPOINT_URL,
        "aws_region": settings.AWS_REGION,
    }
    return S3Store(
        bucket,
        config={  # type: ignore[arg-type]  # names of a TypedDict
            **{name: value for name, value in given.items() if value},
            "aws_virtual_hosted_style_request": settings.AWS_VIRTUAL_HOSTED_STYLE_REQUEST,
            "aws_checksum_algorithm": "SHA256",
        },
        client_options={
            "allow_http": (settings.AWS_ENDPOINT_URL or "").startswith("http://"),
            "connect_timeout": timedelta(seconds=10),
            # For one part.
            "timeout": timedelta(seconds=120),
            **({"root_certificate": settings.OUTBOUND_CA} if settings.OUTBOUND_CA else {}),
        },
        retry_config={"max_retries": settings.BACKUP_S3_RETRIES, "retry_timeout": timedelta(minutes=5)},
    )


@dataclass(frozen=True, slots=True)
class ObjectsOfSet(SetPlace):
    """A set: the objects with a common prefix."""

    url: str
    store: S3Store
    # Empty, or with a slash at the end.
    prefix: str

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:  # type: ignore[override]  # read only
        return self.prefix.rstrip("/").rpartition("/")[2]

    def read_list(self) -> bytes:
        with _errors():
            return bytes(obstore.get(self.store, f"{self.prefix}{LIST}").bytes())

    def describe(self, name: str) -> tuple[int, str]:
        size, digest = 0, hashlib.sha256()
        for chunk in self._chunks(name):
            size += len(chunk)
            digest.update(chunk)
        return size, digest.hexdigest()

    @contextmanager
    def fetched(self, name: str) -> Iterator[Path]:
        with temporary_folder() as folder:
            path = folder / name
            with path.open("wb") as out:
                for chunk in self._chunks(name):
                    out.write(chunk)
            yield path

    def _chunks(self, name: str) -> Iterator[bytes]:
        with _errors():
            for chunk in obstore.get(self.store, f"{self.prefix}{name}").stream():
                yield bytes(chunk)

    def delete(self) -> None:
        """Delete the objects, the list first. Raises OSError."""
        with _errors():
            with suppress(FileNotFoundError):
                obstore.delete(self.store, f"{self.prefix}{LIST}")
            for chunk in obstore.list(self.store, self.prefix):
                obstore.delete(self.store, [entry["path"] for entry in chunk])

    def newest_change(self) -> datetime:
        """Return when the newest object was written. Raises OSError."""
        with _errors():
            return max(entry["last_modified"] for chunk in obstore.list(self.store, self.prefix) for entry in chunk)


@dataclass(frozen=True, slots=True)
class NewObjects(NewSet):
    """A set that is uploaded file by file."""

    location: ObjectsOfSet
    folder: Path

    def store(self, name: str) -> tuple[int, str]:
        file = self.folder / name
        described = digest_of(file)
        with _errors():
            self._put(name, file)
            stored = obstore.head(self.location.store, f"{self.location.prefix}{name}")["size"]
        if stored != described[0]:
            raise OSError(errno.EIO, "The storage has a file of another size than was uploaded.")
        file.unlink()
        return described

    def finish(self, content: bytes) -> None:
        with _errors():
            self._put(LIST, content)

    def _put(self, name: str, content: Path | bytes) -> None:
        obstore.put(
            self.location.store,
            f"{self.location.prefix}{name}",
            content,
            chunk_size=PART_BYTES,
            max_concurrency=PARTS_AT_ONCE,
        )


class Bucket(Storage):
    """A bucket, or a prefix in one, with sets; or the prefix of one."""

    def __init__(self, url: str) -> None:
        bucket, _, prefix = url.removeprefix(SCHEME).partition("/")
        if not bucket:
            raise OSError(errno.EINVAL, "The name of the bucket is missing: s3://bucket/prefix")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._url = f"{SCHEME}{bucket}/{self._prefix}".rstrip("/")
        self._store = _store(bucket)

    def __str__(self) -> str:
        return self._url

    def itself(self) -> ObjectsOfSet:
        return ObjectsOfSet(self._url, self._store, self._prefix)

    def sets(self) -> list[SetPlace]:
        if self._prefix and _has_list(self.itself()):
            return [self.itself()]
        return [location for location in self._locations() if _has_list(location)]

    def _locations(self) -> list[ObjectsOfSet]:
        with _errors():
            prefixes = obstore.list_with_delimiter(self._store, self._prefix or None)["common_prefixes"]
        names = sorted((path.rpartition("/")[2] for path in prefixes), reverse=True)
        return [self._location(name) for name in names if name.startswith(PREFIX)]

    def _location(self, name: str) -> ObjectsOfSet:
        return ObjectsOfSet(f"{self._url}/{name}", self._store, f"{self._prefix}{name}/")

    @contextmanager
    def new_set(self, name: str) -> Iterator[NewObjects]:
        # An error of the storage is found before tenants are backed up.
        self._locations()
        location = self._location(name)
        with temporary_folder() as folder:
            try:
                yield NewObjects(location, folder)
            except BaseException:
                with suppress(OSError):
                    location.delete()
                raise

    def remove(self, location: SetPlace) -> None:
        self._location(location.name).delete()

    def remove_unfinished(self) -> None:
        for location in self._locations():
            if not _has_list(location) and location.newest_change() < now() - ABANDONED:
                location.delete()


def _has_list(location: ObjectsOfSet) -> bool:
    try:
        with _errors():
            obstore.head(location.store, f"{location.prefix}{LIST}")
    except FileNotFoundError:
        return False
    return True
