"""A folder of an application of Node.js that has installed sdk/typescript from its package."""

import fcntl
import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.openid.node_client import install_packages, node_programs
from tests.sdk.readme import SDK, example

SOURCE = SDK / "typescript"
NAME = "identity-platform-sdk"
COMPILER = SOURCE / "node_modules/tsc/bin/tsc"
SCRIPTS = Path(__file__).parent / "node"
# The strictest settings of the compiler, and those with which Node.js runs TypeScript.
STRICT = {
    "target": "es2023",
    "lib": ["es2023", "dom", "dom.iterable"],
    "types": ["node"],
    "module": "nodenext",
    "noEmit": True,
    "allowImportingTsExtensions": True,
    "strict": True,
    "noUncheckedIndexedAccess": True,
    "exactOptionalPropertyTypes": True,
    "noPropertyAccessFromIndexSignature": True,
    "noImplicitOverride": True,
    "noImplicitReturns": True,
    "verbatimModuleSyntax": True,
    "erasableSyntaxOnly": True,
    "skipLibCheck": False,
}


class Workspace:
    """The folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packages = folder / "node_modules"
        self.packages.mkdir()
        install_packages(SOURCE)
        with (SOURCE / "package.json").open() as held:
            # Packing builds: of a parallel run one process at a time.
            fcntl.flock(held, fcntl.LOCK_EX)
            (packed,) = json.loads(node("pack", "--json", "--pack-destination", str(folder), cwd=SOURCE, npm=True))
        self.files = {file["path"] for file in packed["files"]}
        with tarfile.open(folder / packed["filename"]) as package:
            package.extractall(folder, filter="data")
        (folder / "package").rename(self.packages / NAME)
        # Those of the lock file: what the package depends on, and Express.
        for installed in (SOURCE / "node_modules").iterdir():
            (self.packages / installed.name).symlink_to(installed)
        (folder / "package.json").write_text('{"private": true, "type": "module"}')
        for script in SCRIPTS.glob("*.ts"):
            (folder / script.name).write_bytes(script.read_bytes())
        self.write("step-up.ts", example("typescript", "Errors and step-up"))

    def write(self, name: str, code: str) -> Path:
        """Add a file."""
        path = self.folder / name
        path.write_text(code)
        return path

    def compile(self) -> None:
        """Check the types of all files."""
        self.write("tsconfig.json", json.dumps({"compilerOptions": STRICT, "include": ["*.ts"]}))
        node(str(COMPILER), cwd=self.folder)

    def run(self, script: str) -> str:
        """Run a file; return what it prints."""
        return node(script, cwd=self.folder)

    def start(self, script: str) -> "subprocess.Popen[str]":
        """Start a server."""
        program, _ = node_programs()
        return subprocess.Popen(
            [program, script], cwd=self.folder, env=environment(), stdout=subprocess.PIPE, text=True
        )

    def run_flow(self, given: dict[str, Any], answer: Callable[[str], str]) -> Any:
        """Run a flow of `flows.ts`; `answer` gets its questions."""
        with self.start_flow() as process:
            assert process.stdin
            assert process.stdout
            said: Any = given
            while True:
                process.stdin.write(json.dumps(said) + "\n")
                process.stdin.flush()
                line = json.loads(process.stdout.readline() or "{}")
                assert line, "The script ended without a result."
                if "result" in line:
                    return line["result"]
                said = answer(line["question"])

    def start_flow(self) -> "subprocess.Popen[str]":
        program, _ = node_programs()
        return subprocess.Popen(
            [program, "flows.ts"],
            cwd=self.folder,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


def environment() -> dict[str, str]:
    """Node.js of the wheel for scripts of packages too."""
    program, _ = node_programs()
    return {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "HOME": os.environ.get("HOME", ""),
        "NODE_NO_WARNINGS": "1",
    }


def node(*words: str, cwd: Path, npm: bool = False) -> str:
    """Run Node.js, or npm; return its output, and fail with it."""
    program, manager = node_programs()
    command = [program, *([manager] if npm else []), *words]
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
