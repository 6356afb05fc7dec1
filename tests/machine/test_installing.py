"""docs/installing.md, line by line, on Debian's PostgreSQL, Redis and nginx. Stand-ins take the place of systemd."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from identity_platform.serving.embedded.temporary import folder_for_databases
from tests.documentation.blocks import blocks
from tests.machine.conftest import ROOT, free_port
from tests.machine.groups import program

pytestmark = [
    *(pytest.mark.needs(name) for name in ("pg_ctlcluster", "redis-server", "nginx", "systemd-analyze")),
    # An installation compiles all packages.
    pytest.mark.timeout(500),
]
PAGE = ROOT / "docs" / "installing.md"
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
RELEASES = {"12": "bookworm", "13": "trixie"}
RUN = "not run: it changes the machine; a test runs it with stand-ins"
STAND_INS = ("apt-get", "git", "useradd", "install", "runuser", "systemctl", "systemd-run")
FOLDERS = ("/srv/identity", "/etc/identity", "/var/lib/identity", "/run/identity", "/etc/systemd/system", "/etc/nginx")
OUTER = "pid {0}/nginx.pid; events {{}} http {{ {1} include {0}/etc/nginx/sites-enabled/*; }}"


class Machine:
    """The folders, ports and servers of the machine that the page is followed on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started = folder / "started"
        self.started.touch()
        self.paths = {
            name: f"{folder}{name}"
            for name in (*FOLDERS, "/etc/ssl/private", "/usr/local/sbin", "/tmp/metrics", "/var/log/nginx")
        }
        self.paths |= {port: str(free_port()) for port in ("8001", "8002", "9464", "9465", "5432", "6379")}
        for name in (
            "/etc/systemd/system",
            "/etc/nginx/sites-enabled",
            "/etc/ssl/private",
            "/usr/local/sbin",
            "/srv",
            "/var/log/nginx",
        ):
            (folder / name[1:]).mkdir(parents=True)
        as_postgres = ["/usr/sbin/runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        data = folder / "data"
        data.mkdir()
        if as_postgres:
            shutil.chown(data, "postgres", "postgres")
        newest = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
        control = [*as_postgres, f"{newest}/pg_ctl", "--pgdata", str(data), "--silent", "--wait"]
        self.postgres = [*control, f"--log={data}/log", "--mode=fast"]
        initdb = f"{newest}/initdb --pgdata={data} --username=postgres --no-sync --locale=C".split()
        # What Debian's pg_hba.conf has.
        initdb += ["--auth-local=trust", "--auth-host=scram-sha-256"]
        subprocess.run([*as_postgres, *initdb], check=True, stdout=subprocess.DEVNULL, cwd="/")
        with (data / "postgresql.conf").open("a") as file:
            file.write(f"port = {self.paths['5432']}\nunix_socket_directories = '{data}'\nfsync = off\n")
        self.psql = [*as_postgres, f"{newest}/psql", "-h", str(data), "-p", self.paths["5432"], "-U", "postgres"]

    def here(self, text: str) -> str:
        """Return a text of the page with the folders and ports of this machine."""
        pattern = "|".join(re.escape(documented) for documented in self.paths)
        return re.sub(rf"(?:{pattern})(?![0-9])", lambda match: self.paths[match[0]], text)

    def programs(self) -> Path:
        """Return the folder of the stand-ins."""
        folder = self.folder / "programs"
        folder.mkdir()
        script = ROOT / "tests" / "machine" / "stand_ins" / "machine.py"
        for name in STAND_INS:
            (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -I {folder}/{name}.py "$@"\n')
            (folder / name).chmod(0o755)
            (folder / f"{name}.py").write_text(
                script.read_text().replace("Path(sys.argv[0]).name", "Path(sys.argv[0]).stem")
            )
        nginx = program("nginx")
        (folder / "nginx").write_text(f'#!/bin/sh\nexec {nginx} -c {self.folder}/nginx.conf -p {self.folder} "$@"\n')
        (folder / "nginx").chmod(0o755)
        return folder


@pytest.fixture
def machine() -> Iterator[Machine]:
    folder = Path(folder_for_databases()) / f"identity-installed-{os.getpid()}"
    folder.mkdir(mode=0o755)
    made = Machine(folder)
    subprocess.run([*made.postgres, "start"], check=True, cwd="/")
    redis = subprocess.Popen(
        ["redis-server", "--port", made.paths["6379"], "--save", "", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield made
    end_services(made)
    redis.terminate()
    redis.wait(30)
    subprocess.run([*made.postgres, "stop"], check=False, cwd="/")
    shutil.rmtree(folder)


def end_services(machine: Machine) -> None:
    """Stop the services that the page has started, with their workers."""
    processes = []
    for line in machine.started.read_text().splitlines():
        with suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(int(line.split()[0])))
            processes[-1].terminate()
    for process in psutil.wait_procs(processes, timeout=20)[1]:
        process.kill()


def script_of_page(machine: Machine) -> str:
    """Return the blocks of the page as one script. `.ci/production` installs the packages; here they are those of the tests."""
    found = [block.text for block in blocks() if block.page == PAGE and block.mark == RUN]
    assert len(found) == 10
    text = "set -eu\n" + "".join(found)
    installation = "( set -a; . /etc/identity/identity.env; python3 bin/_environment.py runtime )"
    assert text.count(installation) == 1
    return machine.here(text.replace(installation, f"ln -s {ROOT}/.venv .venv"))


@pytest.mark.nightly
def test_page_leads_from_an_empty_machine_to_a_running_platform(machine: Machine) -> None:
    certificate = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    private = f"{machine.folder}/etc/ssl/private"
    certificate += [
        "-keyout",
        f"{private}/platform.key",
        "-out",
        f"{private}/platform.pem",
        "-subj",
        "/CN=id.example.org",
    ]
    subprocess.run(certificate, check=True, capture_output=True)
    temporary = " ".join(f"{name}_temp_path {machine.folder}/{name};" for name in ("client_body", "proxy", "fastcgi"))
    temporary += " ".join(f" {name}_temp_path {machine.folder}/{name};" for name in ("uwsgi", "scgi"))
    (machine.folder / "nginx.conf").write_text(OUTER.format(machine.folder, temporary))
    (machine.folder / "machine.json").write_text(
        json.dumps(
            {
                "paths": machine.paths,
                "postgres": [*machine.postgres, "restart"],
                "psql": machine.psql,
                "started": str(machine.started),
                "tree": str(ROOT),
            }
        )
    )
    path = f"{machine.programs()}:{os.environ['PATH']}:/usr/sbin"
    environment = {"PATH": path, "HOME": str(machine.folder), "MACHINE": str(machine.folder / "machine.json")}
    ended = subprocess.run(
        ["bash", "-c", script_of_page(machine)], env=environment, capture_output=True, text=True, timeout=240, cwd="/"
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert ended.stdout.count('"ready"') == 2, ended.stdout
    assert "identity_build_info{" in ended.stdout
    settings = Path(machine.here("/etc/identity/identity.env"))
    assert settings.stat().st_mode & 0o777 == 0o640
    assert Path(machine.here("/var/lib/identity/backups")).stat().st_mode & 0o777 == 0o750
    assert list(Path(machine.here("/var/lib/identity/backups")).glob("platform-*"))
    units = [line.split()[1] for line in machine.started.read_text().splitlines()]
    assert len(units) == 4


def test_hosted_ci_follows_the_page_on_every_release_it_names() -> None:
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    named = re.findall(r"Debian (\d+) or (\d+)", PAGE.read_text())[0]
    job = jobs["installation"]
    assert job["strategy"]["matrix"]["release"] == [RELEASES[release] for release in named]
    assert job["steps"][-1]["run"] == ".ci/installation ${{ matrix.release }}"
    assert jobs["checks"]["steps"][-1]["run"] == ".ci/run"
    assert jobs["nightly"]["steps"][-1]["run"] == ".ci/run machine packages tests_nightly"
