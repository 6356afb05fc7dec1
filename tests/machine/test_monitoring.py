"""deploy/monitoring: loaded by Prometheus' own tools, and true to the metrics that there are; metrics of commands."""

import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, call_command
from prometheus_client import REGISTRY
from prometheus_client.metrics_core import Metric

from console.metrics import exposition
from identity_platform.api import metrics
from identity_platform.serving import metrics_server
from tenants import metrics as platform_metrics
from tenants.database_servers.server_health import check_servers
from tenants.lifecycle.capacity import main_server
from tests.machine.conftest import ROOT, free_port
from userflow.webhooks import deliverer

MONITORING = ROOT / "deploy" / "monitoring"
NAME = re.compile(r"\bidentity_[a-z_]+\b")


def suffixed(metric: Metric) -> Iterator[str]:
    ends = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
    yield from (metric.name + end for end in ends.get(metric.type, [""]))


@pytest.fixture
def names() -> set[str]:
    """Every metric that a scrape can have."""
    assert deliverer.__name__  # its counters exist
    main_server()
    check_servers()
    families = [*REGISTRY.collect(), *metrics._of_host(), *platform_metrics.collect(), *exposition.collect()]
    shown = {name for family in families for name in suffixed(family) if name.startswith("identity_")}
    # Of no collector; shown once there is a backup, or metrics were collected.
    return shown | {
        "identity_collector_up",
        "identity_backup_timestamp_seconds",
        "identity_backup_failed_tenants",
        "identity_figures_age_seconds",
    }


def rules() -> list[dict[str, str]]:
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> list[str]:
    """Every query of the dashboard."""
    panels = json.loads((MONITORING / "grafana-dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def used(expression: str) -> set[str]:
    return set(NAME.findall(expression))


def test_alerts_ask_for_metrics_that_exist(names: set[str]) -> None:
    for rule in rules():
        assert used(rule["expr"]) <= names | {"up"}, rule["alert"]
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_dashboard_asks_for_metrics_that_exist(names: set[str]) -> None:
    assert len(expressions()) > 40
    for expression in expressions():
        assert used(expression), expression
        assert used(expression) <= names, expression


def test_page_names_every_metric_and_no_other(names: set[str]) -> None:
    rows = [
        line for line in (ROOT / "docs" / "monitoring.md").read_text().splitlines() if line.startswith("| `identity")
    ]
    named = {name for row in rows for name in NAME.findall(row.split("|")[1])}
    histograms = {name.removesuffix("_bucket") for name in names if name.endswith("_bucket")}
    single = {name for name in names if not name.startswith(tuple(f"{each}_" for each in histograms))}
    # Of other tests in this process.
    single = {name for name in single if "this_test" not in name}
    assert named == single | histograms


def promtool(*arguments: str | Path, cwd: Path = MONITORING) -> str:
    program = shutil.which("promtool")
    assert program
    ended = subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.needs("promtool")
def test_prometheus_loads_configuration_and_rules() -> None:
    assert f"{len(rules())} rules found" in promtool("check", "rules", "alerts.yml")
    assert "SUCCESS" in promtool("check", "config", "--syntax-only", "prometheus.yml")


@pytest.mark.needs("promtool")
def test_queries_of_dashboard_are_valid(tmp_path: Path) -> None:
    recorded = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(expressions())]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    promtool("check", "rules", "panels.yml", cwd=tmp_path)


@pytest.mark.needs("promtool")
def test_alerts_fire_and_stay_silent() -> None:
    assert "SUCCESS" in promtool("test", "rules", ROOT / "tests" / "machine" / "alerts_test.yml")


def test_every_alert_is_tested() -> None:
    tests = yaml.safe_load((ROOT / "tests" / "machine" / "alerts_test.yml").read_text())["tests"]
    fired = {each["alertname"] for test in tests for each in test["alert_rule_test"] if each.get("exp_alerts")}
    silent = {each["alertname"] for test in tests for each in test["alert_rule_test"] if not each.get("exp_alerts")}
    assert fired == silent == {rule["alert"] for rule in rules()}


def read(port: int, *, token: str = "only-for-this-test", path: str = "/metrics") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_process_without_requests_serves_its_metrics(settings: Any) -> None:
    settings.METRICS_TOKEN = "only-for-this-test"
    port = free_port()
    metrics_server.start(f"127.0.0.1:{port}")
    status, shown = read(port)
    assert status == 200
    assert "identity_build_info{" in shown
    # What is true of the whole platform is scraped elsewhere.
    assert "identity_tenants{" not in shown
    assert read(port, token="wrong")[0] == read(port, path="/")[0] == 404
    settings.METRICS_TOKEN = None
    assert read(port, token="")[0] == 404


def test_connection_that_sends_nothing_is_closed() -> None:
    port = free_port()
    metrics_server.start(f"127.0.0.1:{port}")
    with socket.create_connection(("127.0.0.1", port), timeout=metrics_server.SILENT_SECONDS + 10) as silent:
        assert silent.recv(1) == b""


@pytest.mark.parametrize("command", ["tenant_worker", "deliver_events"])
@pytest.mark.parametrize("address", ["9464", "127.0.0.1:", ":9464", "127.0.0.1:70000", "no-such-host.invalid:9464"])
def test_command_rejects_address_where_it_cannot_listen(command: str, address: str) -> None:
    with pytest.raises(CommandError, match=r"--metrics .*(state an address|cannot listen)"):
        call_command(command, metrics=address)
