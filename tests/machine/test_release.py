"""bin/release: its files, their signature, and the package in an environment of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest

from identity_platform.installation import VERSION
from tests.architecture.test_requirements import PACKAGES
from tests.machine.conftest import ROOT, Holder, environment, free_port, kill_servers, within

pytestmark = pytest.mark.needs("ssh-keygen")
UV = Path(sys.executable).with_name("uv")
# Of docs/installing-the-package.md.
VERIFY = "ssh-keygen -Y verify -f allowed_signers -I release -n identity-platform -s SHA256SUMS.sig < SHA256SUMS"
COMPARE = "sha256sum --check --strict SHA256SUMS"


def run(*command: str | Path, **variables: str) -> str:
    done = subprocess.run([*map(str, command)], env=os.environ | variables, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shell(line: str, folder: Path) -> int:
    return subprocess.run(["bash", "-euc", line], cwd=folder, capture_output=True).returncode


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of this tree, signed with a key of its own."""
    key = tmp_path_factory.mktemp("key") / "release"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    folder = tmp_path_factory.mktemp("release") / "dist"
    run("bin/release", "--trial", folder, SIGNING_KEY=str(key))
    (folder / "allowed_signers").write_text(f"release {key.with_suffix('.pub').read_text()}")
    return folder


@pytest.fixture(scope="module")
def wheel(release: Path) -> Path:
    (wheel,) = release.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def identity(release: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the package in a new environment, installed with hashes as docs/installing-the-package.md says."""
    python = tmp_path_factory.mktemp("venv") / "bin" / "python"
    run(UV, "venv", "--quiet", "--python", sys.executable, python.parent.parent)
    install = [UV, "pip", "install", "--quiet", "--python", python]
    run(*install, "--require-hashes", "-r", release / "requirements.txt", "-r", release / "requirements-embedded.txt")
    run(*install, "--offline", "--no-deps", wheel)
    # Nothing that the package requires is missing or has another version.
    run(UV, "pip", "check", "--python", python)
    return python.with_name("identity")


@pytest.fixture
def state() -> Iterator[Path]:
    """A folder for state, short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="identity-home-"))
    yield folder
    kill_servers(folder)
    shutil.rmtree(folder, ignore_errors=True)


def test_release_is_complete_and_its_sums_agree(release: Path) -> None:
    listed = {line.split()[1] for line in (release / "SHA256SUMS").read_text().splitlines()}
    assert listed == {path.name for path in release.iterdir()} - {"SHA256SUMS", "SHA256SUMS.sig", "allowed_signers"}
    assert {path.rpartition(".")[2] for path in listed} == {"whl", "gz", "txt", "json"}
    assert shell(COMPARE, release) == 0
    bill = json.loads((release / "sbom.cdx.json").read_text())
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"]) == ("identity-platform", VERSION)
    assert {"Django", "psycopg", "granian"} <= {component["name"] for component in bill["components"]}


def test_altered_release_is_noticed(release: Path, tmp_path: Path) -> None:
    assert shell(VERIFY, release) == 0
    run("cp", "-r", f"{release}/.", tmp_path)
    (tmp_path / "requirements.txt").write_text("django==5.2.0\n")
    assert (shell(VERIFY, tmp_path), shell(COMPARE, tmp_path)) == (0, 1)
    shell("sha256sum *.whl *.gz *.txt *.json > SHA256SUMS", tmp_path)
    assert shell(COMPARE, tmp_path) == 0
    assert shell(VERIFY, tmp_path) != 0


def test_release_of_a_used_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "old.whl").touch()
    done = subprocess.run([ROOT / "bin/release", "--trial", tmp_path], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        2,
        f"bin/release: {tmp_path} is not empty. Name another folder: bin/release FOLDER\n",
    )


def test_package_contains_all_its_files(wheel: Path) -> None:
    packaged = {"templates": "templates", "deploy": "deploy", "examples/django-authlib": "examples/django-authlib"}
    folders = {name: name for name in PACKAGES} | {
        name: f"identity_platform/packaged/{path}" for name, path in packaged.items()
    }
    tracked = run("git", "ls-files", "--cached", "--others", "--exclude-standard", *folders).splitlines()
    expected = {
        target + path.removeprefix(folder)
        for path in tracked
        for folder, target in folders.items()
        if path.startswith(f"{folder}/") and (ROOT / path).exists()
    }
    assert len(expected) > 800
    with zipfile.ZipFile(wheel) as archive:
        assert expected - set(archive.namelist()) == set()


@contextmanager
def served(identity: Path, log: Path, variables: dict[str, str]) -> Iterator[Callable[[str], bool]]:
    """Run `identity serve` until the block ends; yield whether a path of it responds with 200."""
    port = free_port()
    with log.open("w") as lines:
        here = variables | {"PORT": str(port)}
        server = subprocess.Popen([identity, "serve"], env=here, cwd="/", stdout=lines, stderr=lines)
    try:
        assert within(120, lambda: responds(port, "/uflow/ready") or server.poll() is not None)
        assert server.poll() is None, log.read_text()
        yield partial(responds, port)
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


@pytest.mark.nightly
def test_package_serves_its_first_request(identity: Path, state: Path, tmp_path: Path) -> None:
    # No IDENTITY_VAR: the state folder is the default of a package.
    here = environment(state, XDG_STATE_HOME=str(state)) | {"PYTHONPATH": ""}
    del here["IDENTITY_VAR"]

    def said(*words: str | Path) -> str:
        done = subprocess.run([identity, *words], env=here, cwd="/", capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with served(identity, tmp_path / "log", here) as responds_at:
        printed = (tmp_path / "log").read_text()
        assert f"export IDENTITY_VAR={state}/identity-platform\n" in printed
        assert "identity manage demo prints it again" in printed
        for path in ("/admin/login/", "/static/console/find.css", "/t/demo/.well-known/openid-configuration", "/docs/"):
            assert responds_at(path), path
        assert said("manage", "check") == "System check identified no issues (1 silenced).\n"
        assert "export OPERATOR_PASSWORD=" in said("demo")
        assert "global database  ok" in said("doctor", "--output", state / "report.json")


@pytest.mark.nightly
def test_package_serves_on_servers_of_production(identity: Path, settled_home: Path, tmp_path: Path) -> None:
    holder = Holder(settled_home)
    here = environment(
        tmp_path,
        DATABASE_URL=holder.database_url,
        REDIS_URL=holder.redis_url,
        SECRET_KEY_FILE=str(settled_home / "keys" / "secret_key"),
        ENCRYPTION_KEYS_FILE=str(settled_home / "keys" / "encryption_keys"),
        EMAIL_URL="console:",
        ALLOWED_HOSTS="localhost",
        SECURE_SSL_REDIRECT="0",
    ) | {"PYTHONPATH": ""}
    try:
        with served(identity, tmp_path / "log", here) as responds_at:
            assert responds_at("/admin/login/")
            assert "OPERATOR_PASSWORD" not in (tmp_path / "log").read_text()
    finally:
        holder.leave()
    assert not (tmp_path / "postgres").exists()


def responds(port: int, path: str) -> bool:
    try:
        with urlopen(f"http://localhost:{port}{path}", timeout=30) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@pytest.mark.nightly
def test_command_of_the_package_explains_itself(identity: Path, tmp_path: Path) -> None:
    gone = {
        "DATABASE_URL": "postgresql://identity:secret@127.0.0.1:1/identity",
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "SECRET_KEY": "s" * 50,
        "ENCRYPTION_KEYS": f"k1:{'A' * 43}=",
        "ALLOWED_HOSTS": "id.example.org",
        "EMAIL_URL": "console:",
    }
    here = {**environment(tmp_path, **gone), "PYTHONPATH": ""}

    def said(*words: str) -> tuple[int, str]:
        done = subprocess.run([identity, *words], env=here, cwd="/", capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    code, text = said("manage", "list_tenants")
    assert (code, text.startswith("identity manage: the database server does not answer")) == (1, True)
    code, text = said("migrate")
    assert (code, "'serve', 'prepare', 'demo', 'doctor', 'manage'" in text) == (2, True)
    assert said("--version") == (0, f"identity {VERSION}\n")
    assert said("serve", "--help")[0] == said("manage", "migrate_tenants", "--help")[0] == 0
