"""The embedded servers: shared, stopped by the last one out, unharmed by kill -9."""

import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import redis

from identity_platform.serving import embedded
from tests.machine.conftest import Holder, kill_servers, running

BOTH = ["postgres", "valkey-server"]


def test_last_of_two_processes_stops_the_shared_servers(home: Path) -> None:
    first, second = Holder(home), Holder(home)
    assert (first.database_url, first.redis_url) == (second.database_url, second.redis_url)
    with psycopg.connect(first.database_url, autocommit=True) as one, psycopg.connect(second.database_url) as two:
        one.execute("CREATE TABLE shared (word text)")
        assert two.execute("SELECT count(*) FROM shared").fetchone() == (0,)
    assert redis.Redis.from_url(first.redis_url).ping()
    first.leave()
    assert running(home) == BOTH
    second.leave()
    assert running(home) == []


def test_starts_at_the_same_moment_end_up_on_one_pair_of_servers(home: Path) -> None:
    with ThreadPoolExecutor(4) as starts:
        holders = list(starts.map(lambda _: Holder(home), range(4)))
    assert len({holder.database_url for holder in holders}) == 1
    assert running(home) == BOTH
    for holder in holders:
        holder.leave()
    assert running(home) == []


def test_killed_holder_neither_stops_nor_keeps_servers(home: Path) -> None:
    killed, other = Holder(home), Holder(home)
    killed.kill()
    with psycopg.connect(other.database_url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    other.leave()
    assert running(home) == []


def test_when_everybody_was_killed_the_next_start_attaches(home: Path) -> None:
    holder = Holder(home)
    with psycopg.connect(holder.database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (word text)")
    holder.kill()
    assert running(home) == BOTH
    next_one = Holder(home)
    with psycopg.connect(next_one.database_url) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    next_one.leave()
    assert running(home) == []


def test_killed_servers_return_with_data_at_next_attach(home: Path) -> None:
    holder = Holder(home)
    with psycopg.connect(holder.database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (word text)")
    kill_servers(home)
    again = Holder(home)
    with psycopg.connect(again.database_url) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
        # One call writes out what a crash left, not one for each file of each tenant.
        assert connection.execute("SHOW recovery_init_sync_method").fetchone() == ("syncfs",)
    assert redis.Redis.from_url(again.redis_url).ping()
    holder.leave()
    again.leave()
    assert running(home) == []


def test_stale_locks_of_a_reused_process_id_are_ignored(home: Path) -> None:
    Holder(home).leave()
    # After a reboot, and in containers above all, the number soon belongs to another process: this one.
    (home / "postgres" / "postmaster.pid").write_text(f"{os.getpid()}\n{home / 'postgres'}\n1\n5432\n")
    (home / "postgres" / ".s.PGSQL.5432.lock").write_text(f"{os.getpid()}\n")
    (home / "valkey" / "valkey.sock").touch()
    Holder(home).leave()
    assert running(home) == []


def test_an_interrupted_setup_is_done_again(home: Path) -> None:
    (home / "postgres.new").mkdir()
    (home / "postgres.new" / "PG_VERSION").write_text("18\n")
    holder = Holder(home)
    with psycopg.connect(holder.database_url) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("identity",)
    holder.leave()


def test_removed_home_starts_again_without_old_servers(home: Path) -> None:
    old = Holder(home)
    (home / "postgres").rename(home / "gone")
    new = Holder(home)
    with psycopg.connect(new.database_url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert running(home) == BOTH
    new.leave()
    old.leave()
    assert running(home) == []


def test_two_homes_have_servers_of_their_own(home: Path, tmp_path: Path) -> None:
    here, there = Holder(home), Holder(tmp_path / "other")
    assert here.database_url != there.database_url
    there.leave()
    assert running(tmp_path / "other") == []
    assert running(home) == BOTH
    here.leave()


def test_home_too_deep_for_a_socket_works_and_is_cleaned_up(home: Path) -> None:
    holder = Holder(home / ("deep" * 20) / ("er" * 20) / "with, comma and 'quotes'")
    place = Path(holder.redis_url.removeprefix("unix://").removesuffix("?db=0")).parent.parent
    with psycopg.connect(holder.database_url) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("identity",)
    assert stat.S_IMODE((place / "valkey").stat().st_mode) == 0o700
    assert stat.S_IMODE((place / "postgres").stat().st_mode) == 0o700
    holder.leave()
    assert not place.exists()


@pytest.mark.quiet_machine
def test_attaching_to_running_servers_takes_no_time(home: Path) -> None:
    holder, times = Holder(home), []
    for _ in range(10):
        began = time.monotonic()
        assert embedded.attach(var=home).database_url == holder.database_url
        times.append(time.monotonic() - began)
    taken = min(times)
    embedded.leave(home)
    assert running(home) == BOTH
    holder.leave()
    assert taken < 0.2  # about 0.02 s on an idle machine


def test_forked_child_does_not_stop_its_parents_servers(home: Path) -> None:
    servers = embedded.attach(var=home, unsafe_fast=True)
    child = os.fork()
    if child == 0:
        embedded.leave(home)
        os._exit(0)
    os.waitpid(child, 0)
    assert servers.database_url is not None
    with psycopg.connect(servers.database_url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    embedded.leave(home)
    assert running(home) == []


def test_a_forked_child_keeps_the_servers_when_its_parent_leaves(home: Path) -> None:
    embedded.attach(var=home, unsafe_fast=True)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        embedded.leave(home)
        os._exit(0)
    embedded.leave(home)
    assert running(home) == BOTH
    os.close(read)
    os.close(write)
    os.waitpid(child, 0)
    assert running(home) == []


def test_no_other_user_reaches_the_data(home: Path) -> None:
    holder = Holder(home)
    for folder in ("postgres", "valkey"):
        assert stat.S_IMODE((home / folder).stat().st_mode) == 0o700
    assert stat.S_IMODE(home.stat().st_mode) & 0o007 == 0
    holder.leave()


def test_keys_are_made_once_and_readable_by_their_owner_only(home: Path) -> None:
    with ThreadPoolExecutor(4) as starts:
        made = set(starts.map(lambda _: embedded.keys(home), range(8)))
    assert len(made) == 1
    found = made.pop()
    assert len(found.secret_key) == 64
    assert found.encryption_keys.startswith("k1:")
    assert len(found.encryption_keys) == len("k1:") + 44
    assert stat.S_IMODE((home / "keys").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (home / "keys").iterdir()} == {0o600}
    (home / "keys" / "secret_key").chmod(0o644)
    assert embedded.keys(home) == found
    assert stat.S_IMODE((home / "keys" / "secret_key").stat().st_mode) == 0o600
