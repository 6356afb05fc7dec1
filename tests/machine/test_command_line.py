"""What an operator reads when a command cannot work: one line, an exit code, no traceback."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import pytest
from django.db import connection

from tests.machine.conftest import ROOT, environment

# Nothing listens on port 1.
GONE = {
    "DATABASE_URL": "postgresql://identity:secret@127.0.0.1:1/identity",
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "SECRET_KEY": "s" * 50,
    "ENCRYPTION_KEYS": f"k1:{'A' * 43}=",
    "ALLOWED_HOSTS": "id.example.org",
    "EMAIL_URL": "console:",
}


def said_by(
    home: Path, *words: str, without: str = "", stdout: int | IO[Any] = subprocess.PIPE, **more: str
) -> tuple[int, str]:
    """The exit code and standard error of a command on a machine whose servers are gone."""
    here = {"PATH": os.environ["PATH"], "IDENTITY_VAR": str(home), **GONE, **more}
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *words],
        env={name: value for name, value in here.items() if name != without},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        # Not as this suite was started: under nohup a closed terminal ends nothing.
        preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_DFL),
    )
    return done.returncode, done.stderr


def test_a_database_server_that_is_gone_is_named_in_a_line(tmp_path: Path) -> None:
    code, said = said_by(tmp_path, "list_tenants")
    assert code == 1
    assert said.startswith("manage.py: the database server does not answer")
    assert "Traceback" not in said


def database_url() -> str:
    """The address of this test's global database."""
    there = connection.settings_dict
    host = quote(str(there["HOST"]), safe="")
    return f"postgresql://{there['USER']}:{quote(str(there['PASSWORD']))}@{host}:{there['PORT']}/{there['NAME']}"


@pytest.mark.parametrize("missing", ["no_column FROM tenants_tenant", "1 FROM no_table"])
def test_tables_of_an_older_release_are_named_in_one_line(missing: str, tmp_path: Path, django_db_setup: None) -> None:
    reading = f"from django.db import connection; connection.cursor().execute('SELECT {missing}')"
    code, said = said_by(tmp_path, "shell", "--command", reading, DATABASE_URL=database_url())
    assert (code, said.count("\n")) == (2, 1)
    # `prepare` before the backup would leave none to go back to.
    assert "bin/manage prepare" in said
    assert "backup with the older release before" in said


def test_read_only_database_server_is_named_in_one_line(tmp_path: Path, django_db_setup: None) -> None:
    # A standby, or the old primary after a failover.
    writing = "from django.db import connection; connection.cursor().execute('CREATE TABLE nowhere ()')"
    only_reading = "-c default_transaction_read_only=on"
    code, said = said_by(tmp_path, "shell", "--command", writing, DATABASE_URL=database_url(), PGOPTIONS=only_reading)
    assert (code, said.count("\n")) == (1, 1)
    assert "read-only transaction" in said


def test_a_setting_that_is_missing_is_named_in_a_line(tmp_path: Path) -> None:
    code, said = said_by(tmp_path, "list_tenants", without="SECRET_KEY")
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("manage.py: SECRET_KEY is not set")


def test_a_folder_that_cannot_be_made_names_its_variable(tmp_path: Path) -> None:
    code, said = said_by(tmp_path, "list_tenants", PROMETHEUS_MULTIPROC_DIR="/proc/none")
    assert (code, said.count("\n")) == (2, 1)
    assert "PROMETHEUS_MULTIPROC_DIR: the folder /proc/none cannot be made" in said


@pytest.mark.parametrize("command", ["manage.py list_tenants", "-P -m identity_platform.serving.server"])
@pytest.mark.parametrize(("folder", "wrong"), [("/proc/none", "made"), ("/proc/sys", "written to")])
def test_a_bad_state_folder_is_named_in_one_line(command: str, folder: str, wrong: str) -> None:
    done = subprocess.run(
        [sys.executable, *command.split()], cwd=ROOT, env=environment(Path(folder)), capture_output=True, text=True
    )
    said = [line for line in done.stderr.splitlines() if not line.startswith("Making the databases")]
    assert done.returncode in {1, 2}
    assert len(said) == 1
    assert f"IDENTITY_VAR: the folder {folder} cannot be {wrong}" in said[0]


def test_a_command_before_prepare_says_so_in_one_line(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "list_tenants"], env=environment(home), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "bin/manage prepare" in done.stderr


def test_program_output_is_utf_8_in_every_locale(tmp_path: Path) -> None:
    with open(tmp_path / "out", "w+b") as out:
        letters = "print('J\u00fcrgen \u540d')"
        assert said_by(tmp_path, "shell", "--command", letters, stdout=out, PYTHONIOENCODING="ascii")[0] == 0
    assert "J\u00fcrgen \u540d".encode() in (tmp_path / "out").read_bytes()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_command_that_is_told_to_end_clears_up(name: str, tmp_path: Path) -> None:
    clearing = f"""
import os, signal
try:
    os.kill(os.getpid(), signal.{name})
    signal.pause()
finally:
    open({str(tmp_path / "cleared")!r}, "w")
"""
    code, said = said_by(tmp_path, "shell", "--command", clearing)
    assert (code, said.strip()) == (130, "manage.py: interrupted. The same command can be run again.")
    assert (tmp_path / "cleared").exists()


@pytest.mark.parametrize("out", ["a pipe without a reader", "/dev/full"])
def test_unread_output_leaves_no_traceback(out: str, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as closed, open("/dev/full", "w") as full:
        code, said = said_by(tmp_path, "help", stdout=full if out == "/dev/full" else closed)
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith("manage.py: the output is not whole")


def test_ctrl_c_leaves_no_traceback(tmp_path: Path) -> None:
    code, said = said_by(tmp_path, "shell", "--command", "raise KeyboardInterrupt")
    assert (code, said.strip()) == (130, "manage.py: interrupted. The same command can be run again.")


def test_who_seals_for_ever_outlives_its_database_server(tmp_path: Path) -> None:
    here = {"PATH": os.environ["PATH"], "IDENTITY_VAR": str(tmp_path), **GONE}
    command = [sys.executable, str(ROOT / "manage.py"), "seal_audit", "--every", "0.05"]
    with subprocess.Popen(command, env=here, stderr=subprocess.PIPE, text=True) as sealing:
        assert sealing.stderr is not None
        said = [sealing.stderr.readline() for _ in range(2)]
        sealing.terminate()
        sealing.stderr.read()
    assert said == ["Nothing is sealed: the database does not answer.\n"] * 2
    assert sealing.returncode == 0
