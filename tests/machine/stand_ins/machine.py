"""Stand-ins for apt-get, git, useradd, install, runuser, systemctl and systemd-run: a Debian machine below one folder.

`MACHINE` names a JSON file: `paths` maps the folders and ports of the documentation to those of the test, `postgres` is the
command that restarts the database server, `psql` the one that connects to it as its superuser, `tree` the release.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

MACHINE: dict[str, Any] = json.loads(Path(os.environ["MACHINE"]).read_text())


def here(text: str) -> str:
    """Return the text with the paths and ports of this test."""
    pattern = "|".join(re.escape(documented) for documented in MACHINE["paths"])
    return re.sub(rf"(?:{pattern})(?![0-9])", lambda match: str(MACHINE["paths"][match[0]]), text)


def assignments(file: str) -> dict[str, str]:
    """Return the variables of an EnvironmentFile."""
    lines = shlex.split(Path(file).read_text(), comments=True)
    return dict(line.split("=", 1) for line in lines)


def git(*arguments: str) -> int:
    """Copy the files of this checkout to where the release is cloned, with the folders of this machine in two of them."""
    assert arguments[0] == "clone"
    target = Path(arguments[-1])
    target.mkdir(parents=True)
    listing = ["/usr/bin/git", "-C", MACHINE["tree"], "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listing, check=True, capture_output=True).stdout
    pack = ["tar", "-C", MACHINE["tree"], "--create", "--null", "--files-from", "-"]
    archive = subprocess.run(pack, check=True, input=files, capture_output=True).stdout
    subprocess.run(["tar", "-C", str(target), "--extract"], check=True, input=archive)
    for name in ("identity-manage", "nginx.conf"):
        file = target / "deploy" / name
        file.write_text(here(file.read_text()))
    return 0


def install(*arguments: str) -> int:
    """Run install(1) as this user: owner and group of the documentation do not exist here."""
    words = iter(arguments)
    kept = []
    for word in words:
        if word in ("-o", "-g"):
            next(words)
        else:
            kept.append(word)
    return subprocess.run(["/usr/bin/install", *kept]).returncode


def runuser(*arguments: str) -> int:
    """Run psql as the server's superuser."""
    assert arguments[:4] == ("-u", "postgres", "--", "psql")
    return subprocess.run([*MACHINE["psql"], *arguments[4:]]).returncode


def systemd_run(*arguments: str) -> int:
    """Run the command with the environment and the folders that the options state."""
    variables: dict[str, str] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("--"):
        name, _, value = rest.pop(0).partition("=")
        if name == "--setenv":
            variables.update([value.split("=", 1)])
        elif name == "--working-directory":
            os.chdir(value)
        elif value.startswith("EnvironmentFile="):
            variables |= assignments(value.partition("=")[2])
        elif value.startswith("StateDirectory="):
            make_state_folders(value.partition("=")[2])
    return subprocess.run(rest, env=clean_environment() | variables, stdin=subprocess.DEVNULL).returncode


def make_state_folders(names: str) -> None:
    """Create the folders of a StateDirectory= setting."""
    for name in names.split():
        Path(here("/var/lib/identity"), *Path(name).parts[1:]).mkdir(mode=0o750, parents=True, exist_ok=True)


def clean_environment() -> dict[str, str]:
    """Return what systemd gives to a unit."""
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


def systemctl(*arguments: str) -> int:
    """Start services for real; timers must exist, and nginx must accept its configuration."""
    verb, *units = (word for word in arguments if not word.startswith("-"))
    if (verb, units) == ("restart", ["postgresql"]):
        return subprocess.run(MACHINE["postgres"]).returncode
    folder = Path(here("/etc/systemd/system"))
    for unit in units if verb == "enable" else []:
        if unit.endswith(".timer"):
            assert (folder / unit).is_file(), unit
            assert (folder / unit.replace(".timer", ".service")).is_file(), unit
        else:
            start(folder, unit)
    return 0


def start(folder: Path, unit: str) -> None:
    """Start the program of a unit, with the settings of its file and of the drop-in of all units."""
    template, at, instance = unit.partition("@")
    text = (folder / f"{template}{at}.service").read_text()
    text += "\n".join(path.read_text() for path in sorted((folder / "identity-.service.d").glob("*.conf")))
    settings = [line.partition("=")[::2] for line in text.replace("%i", instance).replace("%N", unit).splitlines()]
    stated: dict[str, list[str]] = {}
    for name, value in settings:
        stated.setdefault(name, []).append(here(value))
    variables = {k: v for line in stated["Environment"] for k, v in (word.split("=", 1) for word in line.split())}
    make_state_folders(stated["StateDirectory"][0])
    Path(variables["PROMETHEUS_MULTIPROC_DIR"]).mkdir(parents=True)
    process = subprocess.Popen(
        shlex.split(stated["ExecStart"][0]),
        env=clean_environment() | variables | assignments(stated["EnvironmentFile"][0]),
        cwd=stated["WorkingDirectory"][0],
        stdin=subprocess.DEVNULL,
        stdout=(folder / f"{unit}.log").open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    with Path(MACHINE["started"]).open("a") as file:
        file.write(f"{process.pid} {unit}\n")


def main() -> int:
    """Run the stand-in of the program whose name this is."""
    name = Path(sys.argv[0]).name
    programs = {"git": git, "install": install, "runuser": runuser, "systemctl": systemctl, "systemd-run": systemd_run}
    # apt-get and useradd change nothing here.
    return programs[name](*sys.argv[1:]) if name in programs else 0


if __name__ == "__main__":
    sys.exit(main())
