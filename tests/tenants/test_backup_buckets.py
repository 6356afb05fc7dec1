"""Backup sets in a bucket, on an S3 server of its own process."""

import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import uuid4

import obstore
import pytest
from obstore.store import S3Store

from tenants.backups import backup_lists, backup_sets
from tenants.backups.backup_buckets import ObjectsOfSet
from tenants.backups.backup_locations import located
from tenants.backups.backup_storage import LIST
from tests.machine.conftest import within
from tests.machine.groups import program
from tests.tenants.conftest import AnotherProcess, check_tenants, run_command
from tests.tenants.test_backup_sets import code_of, drop_database, only
from tests.tenants.test_backup_sets import two as two
from tests.tenants.test_relocation import at_the_step, people
from tests.world import TestTenant

pytestmark = pytest.mark.needs("moto_server")
Two = tuple[TestTenant, TestTenant]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of an S3 server."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [str(program("moto_server")), "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    within(30, lambda: answers(url))
    yield url
    process.terminate()
    process.wait()


def answers(url: str) -> bool:
    try:
        return bool(send("GET", url))
    except OSError:
        return False


def send(method: str, url: str, content: bytes | None = None) -> str:
    """Send an unsigned request, which the server accepts."""
    with urlopen(Request(url, content, method=method), timeout=10) as response:
        return str(response.read().decode())


class Storage:
    """A bucket of the server, with a prefix."""

    def __init__(self, server: str) -> None:
        self.bucket = f"backups-{uuid4().hex[:8]}"
        self.root = f"{server}/{self.bucket}"
        self.url = f"s3://{self.bucket}/identity/daily"
        send("PUT", self.root)

    def names(self) -> list[str]:
        text = send("GET", f"{self.root}?list-type=2")
        return sorted(part.partition("</Key>")[0] for part in text.split("<Key>")[1:])

    def uploads(self) -> bool:
        """Return whether there are parts of unfinished uploads."""
        return "<Upload>" in send("GET", f"{self.root}?uploads")

    def store(self) -> S3Store:
        found = located(self.url).itself()
        assert isinstance(found, ObjectsOfSet)
        return found.store

    def newest(self) -> backup_lists.BackupSet:
        return backup_sets.newest(located(self.url))


@pytest.fixture
def storage(server: str, settings: Any) -> Storage:
    settings.AWS_ENDPOINT_URL, settings.AWS_VIRTUAL_HOSTED_STYLE_REQUEST = server, False
    settings.AWS_ACCESS_KEY_ID = settings.AWS_SECRET_ACCESS_KEY = "key"
    settings.BACKUP_S3_RETRIES = 2
    return Storage(server)


def back_up(storage: Storage, *tenants: TestTenant, **options: Any) -> str:
    return run_command("backup_tenants", storage.url, only=[tenant.slug for tenant in tenants], **options)


def test_set_in_bucket_is_checked_and_restored(two: Two, storage: Storage, tmp_path: Path) -> None:
    acme, zephyr = two
    kept = people(acme)
    said = back_up(storage, acme, zephyr, test=2)
    found = storage.newest()
    files = [LIST, "global.backup", *(f"tenant-{tenant.id}.backup" for tenant in two)]
    assert storage.names() == sorted(f"identity/daily/{found.location.name}/{name}" for name in files)
    assert said.count("was restored into a copy") == 2
    assert f"{storage.url}/{found.location.name} has 2 tenants" in said
    assert "No problems found." in run_command("check_backup", str(found.location), test=1, max_age=1)
    acme.register()
    run_command("restore_tenants", str(found.location), *only(acme), yes=True)
    assert people(acme) == kept
    run_command("extract_global_backup", str(found.location), str(tmp_path / "global.dump"))
    assert (tmp_path / "global.dump").read_bytes()[:5] == b"PGDMP"


def test_lost_tenant_is_restored_from_bucket(two: Two, storage: Storage) -> None:
    acme, zephyr = two
    kept = people(acme)
    back_up(storage, acme, zephyr, test=0)
    drop_database(acme)
    check_tenants(acme.slug, repair=True, yes=True)
    said = run_command("restore_tenants", str(storage.newest().location), lost=True, yes=True)
    assert said.endswith("1 of 1 tenant restored.\n")
    assert people(acme) == kept


@pytest.mark.parametrize("how", ["altered", "missing"])
def test_changed_object_is_noticed(two: Two, storage: Storage, how: str) -> None:
    tenant = two[0]
    back_up(storage, tenant, test=0)
    key = next(key for key in storage.names() if "/tenant-" in key)
    if how == "altered":
        # Of the same size, with the ETag and the checksum of the storage.
        content = bytearray(obstore.get(storage.store(), key).bytes())
        content[-1] ^= 1
        obstore.put(storage.store(), key, bytes(content))
    else:
        obstore.delete(storage.store(), key)
    code, said = code_of("check_backup", storage.url)
    assert code == 1
    assert ("was altered" if how == "altered" else "cannot be read: No such file") in said
    before = people(tenant)
    assert code_of("restore_tenants", str(storage.newest().location), all=True, yes=True)[0] == 1
    assert people(tenant) == before


def test_failed_backup_leaves_nothing_in_bucket(two: Two, storage: Storage) -> None:
    def fail() -> None:
        assert len(storage.names()) == 2
        raise RuntimeError("stopped before the list is uploaded")

    with at_the_step("stored", fail), pytest.raises(RuntimeError):
        back_up(storage, two[0], test=0)
    assert storage.names() == []
    assert not storage.uploads()


def test_killed_backup_is_no_set(two: Two, storage: Storage, monkeypatch: Any) -> None:
    tenant = two[0]
    back_up(storage, tenant, test=0)
    whole = storage.newest().location.name
    monkeypatch.setenv("AWS_ENDPOINT_URL", storage.root.rpartition("/")[0])
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    process = AnotherProcess("identity_platform.settings")
    ended = process.run("backup_tenants", storage.url, "--only", tenant.slug, kill_after="stored")
    process.end()
    assert ended.code == 9
    (killed,) = {key.split("/")[2] for key in storage.names()} - {whole}
    assert storage.newest().location.name == whole
    code, said = code_of("check_backup", f"{storage.url}/{killed}")
    assert (code, said) == (2, f"{storage.url}/{killed} contains no backup set.")


def test_retention_keeps_newest_sets_in_bucket(two: Two, storage: Storage) -> None:
    tenant = two[0]
    back_up(storage, tenant, test=0)
    first = storage.newest().location.name
    said = back_up(storage, tenant, test=0, keep=1)
    assert f"Removed {first}." in said
    assert {key.split("/")[2] for key in storage.names()} == {storage.newest().location.name}


class Flaky(ThreadingHTTPServer):
    """A proxy in front of the server that responds 503 to every second request, and to all if `broken`."""

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Relay)
        self.target, self.broken, self.seen = target, False, 0


class _Relay(BaseHTTPRequestHandler):
    server: Flaky

    def _relay(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
        self.server.seen += 1
        if self.server.broken or self.server.seen % 2:
            self.send_error(503)
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        headers.setdefault("Content-Type", "application/octet-stream")
        request = Request(f"{self.server.target}{self.path}", content, headers, method=self.command)
        try:
            with urlopen(request, timeout=10) as response:
                status, sent, body = response.status, response.headers, response.read()
        except HTTPError as problem:
            status, sent, body = problem.code, problem.headers, problem.read()
        self.send_response(status)
        for name in ("Content-Type", "ETag", "Last-Modified"):
            if name in sent:
                self.send_header(name, sent[name])
        length = sent["Content-Length"] if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _relay

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def flaky(server: str, settings: Any, storage: Storage) -> Iterator[Flaky]:
    proxy = Flaky(server)
    threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True).start()
    settings.AWS_ENDPOINT_URL = f"http://127.0.0.1:{proxy.server_port}"
    yield proxy
    proxy.shutdown()
    proxy.server_close()


def test_responses_5xx_are_retried(two: Two, storage: Storage, flaky: Flaky) -> None:
    assert "was restored into a copy" in back_up(storage, two[0])
    flaky.broken = True
    code, said = code_of("check_backup", storage.url)
    assert (code, said) == (2, f"{storage.url}: The storage responds 503 Service Unavailable.")


def test_missing_bucket_is_named_in_one_line(two: Two, storage: Storage) -> None:
    url = "s3://no-such-bucket/daily"
    for command in (["backup_tenants", url, *only(two[0])], ["check_backup", url]):
        assert code_of(*command) == (2, f"{url}: The bucket does not exist.")


def test_unreachable_storage_is_named_in_one_line(two: Two, storage: Storage, settings: Any) -> None:
    settings.AWS_ENDPOINT_URL = "http://127.0.0.1:9"
    code, said = code_of("backup_tenants", storage.url, *only(two[0]))
    assert code == 2
    assert said == f"{storage.url}: The storage cannot be reached: check AWS_ENDPOINT_URL, AWS_REGION and the network."


def test_missing_permission_is_named_in_one_line(two: Two, storage: Storage, monkeypatch: Any) -> None:
    back_up(storage, two[0], test=0)
    # Without a signature the server lists the bucket, and denies to read objects.
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    code, said = code_of("check_backup", storage.url)
    assert code == 2
    assert said == (
        f"{storage.url}: The storage denies access: the key lacks a permission (list, read, write or delete)."
    )


def test_url_without_bucket_is_rejected() -> None:
    assert code_of("check_backup", "s3://") == (2, "s3://: The name of the bucket is missing: s3://bucket/prefix")
