"""Makes .venv and installs the pinned packages into it; does nothing, quickly, when that was done before."""

import fcntl
import hashlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".installed"
LOCK = VENV / ".lock"


def main() -> None:
    """Exits with 1 and a message when the packages cannot be installed."""
    if Path(sys.prefix) == VENV and _installed() == _wanted(sys.version):
        return
    VENV.mkdir(exist_ok=True)
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two first starts at once must not install into each other
        version = _version()
        if version is None:
            _make()
            version = _version()
        wanted = _wanted(version or "")
        if _installed() != wanted:
            _install()
            # Last, so that an installation that was interrupted is done again.
            STAMP.write_text(wanted, encoding="ascii")


def _installed() -> str | None:
    return STAMP.read_text(encoding="ascii") if STAMP.exists() else None


def _wanted(version: str) -> str:
    digest = hashlib.sha256(version.encode())
    for file in sorted(ROOT.glob("requirements*.txt")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _version() -> str | None:
    """Give the version of .venv's Python; None when there is none that works (its base may have been replaced)."""
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
    print(f"Making {VENV} ...", file=sys.stderr, flush=True)
    _run([base, "-I", "-m", "venv", str(VENV)])


def _install() -> None:
    print("Installing the packages of requirements-dev.txt (once) ...", file=sys.stderr, flush=True)
    pip = [str(PYTHON), "-I", "-m", "pip", "--disable-pip-version-check", "-qq", "install", "--no-input"]
    _run([*pip, "--requirement", str(ROOT / "requirements-dev.txt")])


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode or 1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
