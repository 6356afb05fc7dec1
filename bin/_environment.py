"""Create .venv and install the locked packages into it. Return quickly if they are already installed.

The argument is `runtime` for the server and the commands, `example` for the programs of examples/ too, `documentation` for
the site, `development` for tests and linters as well. A virtual environment made for one serves the others: none removes
packages of another.
"""

import ast
import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"
STAMP = VENV / ".installed"
LOCK = VENV / ".first-start.lock"  # uv itself takes .venv/.lock
LOG = VENV / "install.log"
INSTALLER = "requirements/uv.txt"
# Of argon2-cffi-bindings, whose wheel is built for any x86 processor: hashing a password takes half as long.
ARGON2 = "requirements/argon2.txt"
ARGON2_FOLDER = VENV / "argon2"
# Extensions of processors, as gcc and /proc/cpuinfo name them. The server decides at start which one to use.
EXTENSIONS = ("avx2", "avx512f")
BUILD = "requirements/build.txt"
# What pip and uv print when no index can be reached.
UNREACHABLE = re.compile(
    r"NewConnectionError|Max retries exceeded|Connection broken|dns error|error sending request|connect error"
    r"|[Cc]ould not connect|[Cc]onnection refused|[Nn]ame resolution|timed out|[Ff]ailed to fetch"
)


def main(packages: str) -> None:
    """Exit with 1 and one line on standard error when the packages cannot be installed."""
    locks = _locks(packages)
    try:
        if Path(sys.prefix) == VENV and _outdated(locks, sys.version) == []:
            return
        _update(locks)
    except OSError as problem:
        sys.exit(
            f"Cannot write to {problem.filename or VENV} ({problem.strerror}). The packages are installed into .venv of this "
            "checkout: make it writable for this user, or use a copy that is."
        )


def _locks(packages: str) -> list[str]:
    """Name the lock files of what is asked for. Servers of one's own need no embedded ones."""
    if packages not in {"runtime", "example", "documentation", "development"}:
        sys.exit(f"bin/_environment takes `runtime`, `example`, `documentation` or `development`, not {packages!r}.")
    if packages == "documentation":
        return ["requirements.txt", "requirements/docs.txt"]
    own_servers = all(os.environ.get(name) or os.environ.get(f"{name}_FILE") for name in ("DATABASE_URL", "REDIS_URL"))
    if packages == "development":
        optional = ["requirements/embedded.txt", "requirements/tracing.txt", "requirements/s3.txt"]
        return ["requirements.txt", *optional, "requirements/dev.txt", "requirements/docs.txt"]
    server = ["requirements.txt"] if own_servers else ["requirements.txt", "requirements/embedded.txt"]
    return [*server, "requirements/examples.txt"] if packages == "example" else server


def _update(locks: list[str]) -> None:
    VENV.mkdir(exist_ok=True)
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two first starts at once must not install into each other
        version = _version()
        if version is None:
            _make()
            version = _version() or ""
        outdated = _outdated(locks, version)
        if outdated:
            _install(locks, version)


def _outdated(locks: list[str], version: str) -> list[str]:
    """Name the lock files that changed since they were installed; all of them for another Python."""
    stamp = _stamp()
    return [name for name in (*locks, ARGON2) if stamp.get("python") != version or stamp.get(name) != _digest(name)]


def _stamp() -> dict[str, str]:
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def _digest(name: str) -> str:
    return hashlib.sha256((ROOT / name).read_bytes()).hexdigest()


def _version() -> str | None:
    """Return the version of .venv's Python; None when there is none that works (its base may have been replaced)."""
    try:
        asked = [str(PYTHON), "-I", "-c", "import pip, sys; print(sys.version, end='')"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def _make() -> None:
    base = getattr(sys, "_base_executable", sys.executable)
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit("This Python cannot make virtual environments; on Debian: apt-get install python3-venv")
    for entry in VENV.iterdir():
        if entry != LOCK:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    _say(f"Making {VENV} (once, about 5 s) ...")
    _run([base, "-I", "-m", "venv", str(VENV)])


def _install(locks: list[str], version: str) -> None:
    stamp = _stamp()
    # A stamp of another Python describes packages that are gone.
    installed = stamp if stamp.get("python") == version else {}
    number = sum(len(re.findall(r"^[a-z0-9].*==", (ROOT / name).read_text(), re.MULTILINE)) for name in locks)
    _say(f"Installing {number} packages of {', '.join(locks)} (once, about {5 + number // 6} s) ...")
    if not UV.exists() or installed.get(INSTALLER) != _digest(INSTALLER):
        pip = [str(PYTHON), "-I", "-m", "pip", "--disable-pip-version-check", "-q", "--no-input", "--retries", "2"]
        _run([*pip, "install", "--require-hashes", "--requirement", str(ROOT / INSTALLER)])
    uv = [str(UV), "pip", "install", "--python", str(PYTHON), "--no-progress", "--require-hashes"]
    _run([*uv, *(f"--requirement={ROOT / name}" for name in locks)], _settings_of_pip())
    if installed.get(ARGON2) != _digest(ARGON2) or not ARGON2_FOLDER.exists():
        _build_argon2(uv)
    # Last, so that an interrupted installation is done again.
    stamp = installed | {"python": version} | {name: _digest(name) for name in (INSTALLER, ARGON2, *locks)}
    STAMP.write_text(json.dumps(stamp, indent=1), encoding="utf-8")


def _build_argon2(uv: list[str]) -> None:
    """Build copies of the hashing library if a compiler is there. Without them the platform works, but slower."""
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if platform.machine() not in ("x86_64", "AMD64") or not shutil.which("gcc") or not header.exists():
        return
    shutil.rmtree(ARGON2_FOLDER, ignore_errors=True)
    _say(f"Building argon2-cffi-bindings for {' and '.join(EXTENSIONS)} (once, about 5 s) ...")
    # uv's cache would return the build with other flags.
    source = ["--no-cache", "--no-deps", "--no-binary", "argon2-cffi-bindings"]
    files = ["--build-constraints", str(ROOT / BUILD), "--requirement", str(ROOT / ARGON2)]
    variables = {**os.environ, **_settings_of_pip(), "CC": "gcc"}
    with (VENV / "argon2.log").open("w", encoding="utf-8") as log:
        for extension in EXTENSIONS:
            command = [*uv, *source, *files, "--target", str(ARGON2_FOLDER / extension)]
            flags = {"CFLAGS": f"-O3 -m{extension}"}
            subprocess.run(command, check=False, stdout=log, stderr=log, env=variables | flags)


def _settings_of_pip() -> dict[str, str]:
    """Translate the package index of pip's configuration for uv, which does not read it. Settings of uv win."""
    told = subprocess.run(
        [str(PYTHON), "-I", "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    # pip lists them by name; a later section wins.
    pip = {
        name: ast.literal_eval(value).split()
        for section in ("global", "install", ":env:")
        for name, value in re.findall(rf"^{section}\.([a-z-]+)=(.*)$", told.stdout, re.MULTILINE)
    }
    uv = {
        "UV_DEFAULT_INDEX": " ".join(pip.get("index-url", [])),
        "UV_INDEX": " ".join(pip.get("extra-index-url", [])),
        # As pip does. The hashes identify the file, so the index does not matter.
        "UV_INDEX_STRATEGY": "unsafe-best-match" if "extra-index-url" in pip else "",
        "SSL_CERT_FILE": " ".join(pip.get("cert", [])),
    }
    return {name: value for name, value in uv.items() if value and name not in os.environ}


def _run(command: list[str], variables: dict[str, str] | None = None) -> None:
    try:
        with LOG.open("w+", encoding="utf-8") as log:
            done = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | (variables or {}),
            )
            log.seek(0)
            output = log.read()
    except KeyboardInterrupt:
        sys.exit(130)
    if done.returncode == 0:
        return
    if UNREACHABLE.search(output):
        why = "no package index can be reached. Check the network, the proxy, or PIP_INDEX_URL"
    else:
        why = next(
            (line.strip() for line in reversed(output.splitlines()) if line.strip()), f"exit code {done.returncode}"
        )
    sys.exit(f"Cannot install the packages: {why.rstrip('.')}. All that was said is in {LOG}.")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
