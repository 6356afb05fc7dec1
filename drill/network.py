"""Machines on this machine: network namespaces on one bridge, each of which can be cut off from the others. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from subprocess import CalledProcessError

IP, NSENTER = "ip", "nsenter"
PLACES = "/usr/sbin:/sbin:/usr/bin:/bin"


@dataclass(frozen=True)
class Machine:
    """An address that processes in a network namespace have. Without a namespace: this machine's loopback."""

    address: str = "127.0.0.1"
    namespace: str = ""

    def inside(self, command: Sequence[str], uid: int, gid: int) -> list[str]:
        """Return the command that runs another one in the namespace, as a user. Needs root."""
        enter = [NSENTER, f"--net=/run/netns/{self.namespace}", f"--setuid={uid}", f"--setgid={gid}", "--"]
        return [*enter, *command]


class Network:
    """A bridge with an address of this machine, and a machine for each name. Raises CalledProcessError."""

    def __init__(self, names: Sequence[str]) -> None:
        # Interfaces have names of at most 15 characters. Another drill at the same time has another number.
        number = os.getpid() % 250 + 1
        self.bridge = f"drill{number}"
        self.machines = {
            name: Machine(f"10.213.{number}.{10 + place}", f"{self.bridge}-{name}") for place, name in enumerate(names)
        }
        try:
            _ip("link", "add", self.bridge, "type", "bridge")
            _ip("address", "add", f"10.213.{number}.1/24", "dev", self.bridge)
            _ip("link", "set", self.bridge, "up")
            for name, machine in self.machines.items():
                self._add(self._cable(name), machine)
        except BaseException:
            self.end()
            raise

    def cut_off(self, name: str) -> None:
        """Let no packet from or to this machine pass, without a notice to either side."""
        _ip("link", "set", self._cable(name), "nomaster")

    def cut_off_from(self, name: str, others: Sequence[str]) -> None:
        """Let no packet of this machine reach the others; all else still reaches it, such as the platform's requests."""
        for other in others:
            # An address that no machine has.
            entry = [self.machines[other].address, "lladdr", "02:00:00:00:00:01", "nud", "permanent"]
            _ip("-n", self.machines[name].namespace, "neigh", "replace", *entry, "dev", "eth0")

    def heal(self, name: str) -> None:
        """Connect it with all others again."""
        _ip("link", "set", self._cable(name), "master", self.bridge)
        for machine in self.machines.values():
            with suppress(CalledProcessError):
                _ip("-n", self.machines[name].namespace, "neigh", "delete", machine.address, "dev", "eth0")

    def end(self) -> None:
        """Remove namespaces and interfaces; those that are missing are no error."""
        for name, machine in self.machines.items():
            with suppress(CalledProcessError):
                _ip("link", "delete", self._cable(name))
            with suppress(CalledProcessError):
                _ip("netns", "delete", machine.namespace)
        with suppress(CalledProcessError):
            _ip("link", "delete", self.bridge)

    def _cable(self, name: str) -> str:
        return f"{self.bridge}{name[-1]}"

    def _add(self, cable: str, machine: Machine) -> None:
        _ip("netns", "add", machine.namespace)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", machine.namespace)
        _ip("link", "set", cable, "master", self.bridge, "up")
        inside = ("-n", machine.namespace)
        _ip(*inside, "address", "add", f"{machine.address}/24", "dev", "eth0")
        _ip(*inside, "link", "set", "eth0", "up")
        _ip(*inside, "link", "set", "lo", "up")


def missing_for_networks() -> str:
    """Return what is missing for machines of their own; nothing if all is there."""
    if os.getuid() != 0:
        return "needs root"
    if shutil.which(IP, path=PLACES) is None or shutil.which(NSENTER, path=PLACES) is None:
        return "needs ip and nsenter (Debian: apt install iproute2 util-linux)"
    return ""


def _ip(*words: str) -> None:
    subprocess.run([IP, *words], check=True, capture_output=True, env={"PATH": PLACES})
