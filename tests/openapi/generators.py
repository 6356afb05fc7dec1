"""Three generators of clients, run on the API document, and the compilers of what they write."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from tests.openapi.document import document
from tests.openid.node_client import install_packages, node_programs
from tests.sdk.workspace import STRICT, environment

FOLDER = Path(__file__).parent / "node"
PACKAGES = FOLDER / "node_modules"
APPLICATIONS = Path(__file__).parent / "clients"
_ERROR = re.compile(r"^([\w/.]+)(?:\(\d+,\d+\)|:\d+): error:? (?:(TS\d+)|.*\[([\w-]+)\]$)", re.MULTILINE)


class Clients:
    """A folder with the clients that each generator has written, and an application of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        install_packages(FOLDER)
        (folder / "node_modules").symlink_to(PACKAGES)
        (folder / "package.json").write_text('{"private": true, "type": "module"}')
        (folder / "openapi.json").write_bytes(orjson.dumps(document()))
        for application in APPLICATIONS.iterdir():
            if application.is_file():
                (folder / application.name).write_bytes(application.read_bytes())
        node, _ = node_programs()
        openapi_typescript = PACKAGES / "openapi-typescript/bin/cli.js"
        openapi_ts = PACKAGES / "@hey-api/openapi-ts/bin/run.js"
        commands: dict[str, list[object]] = {
            "openapi-typescript": [node, openapi_typescript, "openapi.json", "--output", "schema.ts"],
            "@hey-api/openapi-ts": [node, openapi_ts, "--file", FOLDER / "openapi-ts.config.mjs"],
            "openapi-python-client": [
                *(sys.executable, "-m", "openapi_python_client", "generate", "--path", "openapi.json"),
                *("--meta", "none", "--output-path", "platform_client", "--fail-on-warning"),
            ],
        }
        runs = {name: self._start(command) for name, command in commands.items()}
        # What each generator says besides its progress: warnings, skipped operations, errors.
        self.problems: dict[str, str] = {}
        for name, run in runs.items():
            progress, warnings = run.communicate(timeout=120)
            self.problems[name] = warnings if run.returncode == 0 else progress + warnings or str(run.returncode)

    def compile_typescript(self) -> set[str]:
        """Check the types of all TypeScript files under the strictest settings; return `file code` of each error."""
        settings = {"compilerOptions": STRICT, "include": ["*.ts", "hey_api/**/*.ts"]}
        (self.folder / "tsconfig.json").write_text(json.dumps(settings))
        node, _ = node_programs()
        return self._errors([node, PACKAGES / "tsc/bin/tsc", "--pretty", "false"])

    def compile_python(self) -> set[str]:
        """Check the types of the Python client and its application; return `file code` of each error."""
        options = ["--strict", "--no-error-summary", "--config-file=", f"--cache-dir={self.folder / 'cache'}"]
        files = ["platform_client", "with_openapi_python_client.py"]
        return self._errors([sys.executable, "-m", "mypy", *options, *files])

    def run(self, application: str, given: dict[str, Any]) -> dict[str, Any]:
        """Run an application; return what it has seen."""
        node, _ = node_programs()
        program = sys.executable if application.endswith(".py") else node
        run = self._start([program, application, json.dumps(given)])
        said, problems = run.communicate(timeout=60)
        assert run.returncode == 0, problems
        return dict(json.loads(said))

    def _errors(self, command: Sequence[object]) -> set[str]:
        run = self._start(command)
        said, problems = run.communicate(timeout=120)
        errors = {f"{match[1]} {match[2] or match[3]}" for match in _ERROR.finditer(said)}
        # A compiler that fails without an error in a file did not check the files.
        assert (run.returncode == 0) is (not errors), said + problems
        return errors

    def _start(self, command: Sequence[object]) -> "subprocess.Popen[str]":
        # openapi-python-client formats with ruff, which it looks for on the path.
        path = os.pathsep.join([sysconfig.get_path("scripts"), environment()["PATH"]])
        return subprocess.Popen(
            [str(word) for word in command],
            cwd=self.folder,
            env={**environment(), "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
