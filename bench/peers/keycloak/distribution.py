"""Install Keycloak from Maven Central, and run it in production mode on a database of the run's PostgreSQL."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench import java, servers
from bench.environments import PEERS
from bench.home import Home
from bench.servers import Server

# Of "sha256sum": the checksum and the name of the archive, which has the version.
CHECKSUM = PEERS / "keycloak" / "distribution.sha256"
COORDINATES = "org.keycloak:keycloak-quarkus-dist:{version}:tar.gz"
LEAST_JAVA = 21
DATABASE = "keycloak"
ADMIN = "admin"
# One node: without the caches of a cluster, in Keycloak's favor.
BUILD = ("build", "--db=postgres", "--cache=local")
# The platform's parameters (userflow.credentials.passwords); Keycloak's own default is 7 MiB and 5 iterations.
ARGON2 = {"memory": 19456, "iterations": 2, "parallelism": 1}
# Its first start creates the tables.
START_SECONDS = 300.0


@dataclass(frozen=True)
class Distribution:
    """An installed and built Keycloak, the Java that runs it, and the password of its first admin."""

    folder: Path
    java_home: Path
    password: str


def install(beside: Path) -> Distribution:
    """Return Keycloak of the pinned version, downloaded and built if it is missing. Raises JavaMissing."""
    home, maven = java.java_home(LEAST_JAVA), java.maven()
    folder = beside / "bench-keycloak"
    stamp, pinned = folder / ".installed", CHECKSUM.read_text(encoding="ascii")
    if not stamp.exists() or stamp.read_text(encoding="ascii") != pinned:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _unpack(_download(maven, folder), folder)
        _run([folder / "bin" / "kc.sh", *BUILD], JAVA_HOME=str(home))
        stamp.write_text(pinned, encoding="ascii")
    return Distribution(folder, home, secrets.token_urlsafe(24))


def _download(maven: str, folder: Path) -> Path:
    checksum, name = CHECKSUM.read_text(encoding="ascii").split()
    version = name.removeprefix("keycloak-quarkus-dist-").removesuffix(".tar.gz")
    artifact = COORDINATES.format(version=version)
    _run([maven, "--batch-mode", "--quiet", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"])
    archive = folder / name
    with archive.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != checksum:
            raise ValueError(f"{archive} does not have the checksum of {CHECKSUM}.")
    return archive


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as files:
        top = files.getnames()[0].split("/", 1)[0]
        files.extractall(folder, filter="tar")
    for path in (folder / top).iterdir():
        path.rename(folder / path.name)
    archive.unlink()


def _run(command: list[str | Path], **variables: str) -> None:
    ran = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    if ran.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")


def create_database(home: Home) -> None:
    """Create an empty database for Keycloak."""
    with psycopg.connect(home.environment["DATABASE_URL"], autocommit=True) as raw:
        raw.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        raw.execute(f"CREATE DATABASE {DATABASE}")


@contextmanager
def serving(home: Home, distribution: Distribution) -> Iterator[Server]:
    """Start Keycloak; its driver connects by TCP. Raises NotStarted."""
    with psycopg.connect(home.environment["DATABASE_URL"]) as raw:
        row = raw.execute("SHOW listen_addresses").fetchone()
    options = {
        "http-enabled": "true",
        "http-host": "127.0.0.1",
        "http-port": "{port}",
        # As the platform's BASE_URL (bench/home.py): tokens have it as their issuer.
        "hostname": "http://127.0.0.1",
        "db-url": f"jdbc:postgresql://{row[0] if row else ''}/{DATABASE}",
        "db-username": "postgres",
        "log-level": "warn",
        **{f"spi-password-hashing--argon2--{name}": str(value) for name, value in ARGON2.items()},
    }
    command = [distribution.folder / "bin" / "kc.sh", "start", "--optimized"]
    command += [f"--{name}={value}" for name, value in options.items()]
    variables = {
        "JAVA_HOME": str(distribution.java_home),
        "KC_BOOTSTRAP_ADMIN_USERNAME": ADMIN,
        "KC_BOOTSTRAP_ADMIN_PASSWORD": distribution.password,
        # PostgreSQL trusts this machine; the driver asks for one all the same.
        "KC_DB_PASSWORD": "unused",
    }
    with servers.running(
        home, "keycloak", command, variables, path="/realms/master", seconds=START_SECONDS
    ) as server:
        yield server
