"""A real Prometheus with the shipped configuration."""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.machine.conftest import ROOT, free_port

MONITORING = ROOT / "deploy" / "monitoring"
SHIPPED_RULES = (MONITORING / "alerts.yml").read_text()
TOKEN = "only-for-this-test"


class Prometheus:
    """Prometheus with the shipped configuration for one machine, whose documented targets are at ports of this one."""

    def __init__(self, folder: Path, ports: dict[str, int], rules: str = SHIPPED_RULES, evaluate: str = "1s") -> None:
        self.port = free_port()
        (folder / "token").write_text(TOKEN)
        (folder / "alerts.yml").write_text(rules)
        shipped = (MONITORING / "prometheus.yml").read_text()
        configuration = yaml.safe_load(shipped.replace("/etc/prometheus/metrics_token", str(folder / "token")))
        configuration["global"] |= {"scrape_interval": "1s", "evaluation_interval": evaluate}
        for job in configuration["scrape_configs"]:
            (static,) = job["static_configs"]
            static["targets"] = [f"127.0.0.1:{ports[name]}" for name in static["targets"] if name in ports]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        program = shutil.which("prometheus")
        assert program
        options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        options += [f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"]
        self.process = subprocess.Popen([program, *options], stdin=subprocess.DEVNULL)

    def get(self, path: str, **query: str) -> Any:
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(address, timeout=10) as response:
            return json.load(response)["data"]

    def health(self) -> dict[str, list[str]]:
        """Return the health of the targets of each job; empty while Prometheus starts."""
        jobs: dict[str, list[str]] = {}
        try:
            targets = self.get("targets")["activeTargets"]
        except OSError:
            return jobs
        for target in targets:
            jobs.setdefault(target["labels"]["job"], []).append(target["health"])
        return jobs

    def alerts(self) -> set[str]:
        """Return the alerts whose condition holds; most wait for some minutes before they fire."""
        return {alert["labels"]["alertname"] for alert in self.get("alerts")["alerts"]}

    def is_firing(self, name: str, labels: dict[str, str]) -> bool:
        """Return whether an alert with these labels, or more, fires."""
        return any(
            alert["state"] == "firing" and alert["labels"].items() >= {"alertname": name, **labels}.items()
            for alert in self.get("alerts")["alerts"]
        )

    def count(self, query: str) -> int:
        """Return how many series a query has."""
        return len(self.get("query", query=query)["result"])

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(30)
