"""An application of docs/quickstarts.md in an empty folder, and its user's browser."""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sysconfig
from pathlib import Path
from typing import IO

from tests.examples.form_browser import FormBrowser
from tests.machine.conftest import free_port, within
from tests.openid.node_client import install_packages, node_programs
from tests.quickstarts.page import steps, write_file

PYTHON_PROGRAMS = Path(sysconfig.get_path("data")) / "quickstarts" / "bin"
NODE_FOLDER = Path(__file__).parent / "node"
GO_FOLDER = Path(__file__).parent / "go"
START_SECONDS = 90
# Maven downloads what it has not yet.
COMMAND_SECONDS = 400


class Application:
    """The folder; `start` follows a section of the page until its last command, which serves."""

    def __init__(self, folder: Path, host: str, variables: dict[str, str]) -> None:
        self.folder, self.host, self.port = folder, host, free_port()
        kept = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG") or name.startswith("GO")}
        programs = os.pathsep.join([str(PYTHON_PROGRAMS), str(node_programs()[0].parent), os.environ["PATH"]])
        ports = dict.fromkeys(("PORT", "FLASK_RUN_PORT", "UVICORN_PORT", "SERVER_PORT"), str(self.port))
        self.environment = {**kept, "PATH": programs, **ports, "NEXT_TELEMETRY_DISABLED": "1", **variables}
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.port}"

    def use_node_packages(self) -> None:
        """Put the pinned packages there, as an installation does: Next.js reads nothing behind a symbolic link."""
        install_packages(NODE_FOLDER)
        copy = ["cp", "--archive", NODE_FOLDER / "node_modules", self.folder]
        # Links need the same file system.
        if subprocess.run([*copy, "--link"], stderr=subprocess.DEVNULL).returncode:
            subprocess.run(copy, check=True)

    def start(self, heading: str, **instead: str) -> None:
        """Write the files and run the commands of a section; `instead` has other texts for files, by their names."""
        found = [*steps(heading)]
        assert found[-1][0] == "command", found[-1]
        for kind, text in found[:-1]:
            if kind == "file":
                write_file(self.folder, text)
            else:
                done = subprocess.run(
                    shlex.split(text),
                    cwd=self.folder,
                    env=self.environment,
                    capture_output=True,
                    text=True,
                    timeout=COMMAND_SECONDS,
                )
                assert done.returncode == 0, done.stdout + done.stderr
        for name, text in instead.items():
            assert (self.folder / name).exists()
            (self.folder / name).write_text(text)
        words = shlex.split(found[-1][1])
        if words[0] == "npx":
            # That of the wheel beside Node.js cannot be executed.
            words[:1] = [str(node_programs()[0]), str(node_programs()[1].with_name("npx-cli.js"))]
        if "runserver" in words:
            # The only server that takes its port in no variable.
            words += [str(self.port), "--noreload"]
        self.serve(words, self.port)

    def serve(self, words: list[str], port: int) -> None:
        """Start a program; return when it listens."""
        log = self.folder / f"{Path(words[0]).name}.log"
        with log.open("wb") as output:
            self._processes.append(self._start(words, output))
        process = self._processes[-1]
        assert within(START_SECONDS, lambda: listens(port) or process.poll() is not None), log.read_text()
        assert process.poll() is None, log.read_text()

    def _start(self, words: list[str], output: IO[bytes]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            words,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def end(self) -> None:
        """End the programs, with those that they have started."""
        for process in self._processes:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)


def listens(port: int) -> bool:
    """Return whether a program listens at this port of 127.0.0.1."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except OSError:
        return False
    return True


def trusting_browser(authority: str) -> FormBrowser:
    """Return a browser that trusts the certificate authority in this file."""
    browser = FormBrowser()
    browser.session.verify = authority
    # Variables of the environment would win.
    browser.session.trust_env = False
    return browser
