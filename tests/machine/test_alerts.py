"""Every alert of deploy/monitoring/alerts.yml fires by its cause: a real Prometheus scrapes a real platform.

Durations of the rules are shortened, nothing else is changed; `alerts_test.yml` shows that they wait as long as they should.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import pytest
import yaml

from identity_platform.serving import embedded
from tests.machine.alert_causes import CAUSES, SILENT
from tests.machine.conftest import ROOT, Holder, Platform, environment, free_port, within
from tests.machine.prometheus import SHIPPED_RULES, TOKEN, Prometheus

pytestmark = pytest.mark.needs("prometheus")
RUN_CAUSES = "import sys, django; django.setup(); from tests.machine.alert_causes import serve; serve(int(sys.argv[1]))"
# Labels by the name of the alert.
Alerts = dict[str, dict[str, str]]
MAIN = {"server": "main"}
# With the labels of each. In this order, so that what a cause does besides has passed when another alert needs it.
CAUSED: Alerts = {
    # Before the platform has leased connections.
    "DatabaseServerNearlyLeased": MAIN,
    "DatabaseServerRefusesConnections": MAIN,
    "DatabaseServerFull": MAIN,
    "TasksFail": {"task": "collect_figures"},
    "TenantDatabasesUnreadable": {},
    "BackupIncomplete": {},
    "AuditEventsUnsealed": {},
    "WebhooksOverdue": {},
    "MailsOverdue": {},
    "WebhooksDead": {},
    "SmsAbused": {},
    "SignInsRejected": {},
    "ErrorsServed": {},
    "HashesFull": {},
    "SlowResponses": {},
    "OperationsRejected": {"kind": "import"},
    "ConnectionsExhausted": {},
    "NoRoomForTenants": {},
    "TenantsBehind": {},
    "TenantsFailed": {},
    "DatabaseServerDown": {"server": SILENT},
}
# Once the worker has ended, which would undo them.
CAUSED_WITHOUT_WORKER: Alerts = {
    "DatabaseServerNotChecked": MAIN,
    "FiguresOld": {},
    "JobsWait": {},
    "NoSpareDatabases": MAIN,
    "BackupOld": {},
    "ValkeyAway": {},
    "CollectorFailed": {"collector": "platform"},
    "InstallationFenced": {},
}
WORKER_ENDED: Alerts = {"WorkerDown": {"job": "identity-worker"}, "NoWorkers": {}}
PLATFORM_ENDED: Alerts = {"PlatformDown": {"job": "identity-platform"}}
# Few threads and connections, which a test can use up.
SETTINGS = {
    "METRICS_TOKEN": TOKEN,
    "ALLOWED_HOSTS": "127.0.0.1",
    "SECURE_SSL_REDIRECT": "0",
    "OPERATORS_REQUIRE_FACTOR": "0",
    "WEB_WORKERS": "1",
    "WEB_THREADS": "8",
    # A quarter of the threads may import.
    "TENANT_CONNECTION_BUDGET": "2",
    "HASHES_AT_ONCE": "1",
    "HASHES_WAITED_FOR": "1",
    "EMAIL_URL": "smtp://127.0.0.1:9",
    "SMS_BACKEND": "mfa.sms.gateway.FileGateway",
    "WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
    "WEBHOOK_PLAIN_HTTP": "1",
}
# It collects metrics once a second, seals nothing, and keeps one spare database.
WORKER = ["tenant_worker", "--every", "0.2", "--figures-every", "1", "--seal-every", "0", "--domains-every", "0"]
WORKER += ["--index-every", "0", "--size", "1", "--metrics"]
SECONDS = {"m": 60, "h": 3600, "d": 86_400}


def shortened(rules: str) -> str:
    """Return the rules with a second in place of each minute of a window, and without the wait before an alert fires."""

    def window(match: re.Match[str]) -> str:
        return f"[{int(match[1]) * SECONDS[match[2]] // 60}s]"

    return re.sub(r"\[(\d+)([mhd])\]", window, re.sub(r"\bfor: \d+[mh]\b", "for: 0s", rules))


def test_every_alert_has_a_cause() -> None:
    names = {rule["alert"] for group in yaml.safe_load(SHIPPED_RULES)["groups"] for rule in group["rules"]}
    assert CAUSED.keys() | CAUSED_WITHOUT_WORKER.keys() == CAUSES.keys()
    assert CAUSES.keys() | WORKER_ENDED.keys() | PLATFORM_ENDED.keys() == names


class Causes:
    """The process of `alert_causes`."""

    def __init__(self, port: int, variables: dict[str, str], log: IO[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", RUN_CAUSES, str(port)],
            env=variables | {"DJANGO_SETTINGS_MODULE": "identity_platform.settings"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        self.log = Path(log.name)

    def wait_for(self, reply: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{reply}\n", self.log.read_text()

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()


@dataclass(frozen=True)
class Installation:
    """A platform with few threads and connections, its worker, and a Prometheus that scrapes both."""

    server: Platform
    worker: "subprocess.Popen[bytes]"
    causes: Causes
    prometheus: Prometheus

    def await_firing(self, alerts: Alerts) -> None:
        for alert, labels in alerts.items():
            is_firing = partial(self.prometheus.is_firing, alert, labels)
            assert within(20, is_firing), (alert, self.prometheus.alerts())

    def await_silence(self, alerts: Alerts) -> None:
        """Wait until what earlier causes did besides has passed."""
        for alert, labels in alerts.items():
            is_firing = partial(self.prometheus.is_firing, alert, labels)
            assert within(20, lambda is_firing=is_firing: not is_firing()), alert

    def fire_one_by_one(self, alerts: Alerts) -> None:
        for alert, labels in alerts.items():
            self.await_silence({alert: labels})
            self.causes.send(alert)
            self.causes.wait_for("caused")
            self.await_firing({alert: labels})
            self.causes.send("")
            self.causes.wait_for("ended")


@pytest.fixture
def installation(settled_home: Path, tmp_path: Path, serve: Callable[..., Platform]) -> Iterator[Installation]:
    with (settled_home / "postgres" / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.write("max_connections = 100\n")
    holder, ports = Holder(settled_home), {"id-1.internal:18001": free_port(), "id-1.internal:19464": free_port()}
    server_port, worker_port = ports.values()
    keys = embedded.keys(settled_home)
    variables = SETTINGS | {
        "DATABASE_URL": holder.database_url,
        "REDIS_URL": holder.redis_url,
        "SECRET_KEY": keys.secret_key,
        "ENCRYPTION_KEYS": keys.encryption_keys,
    }
    with ExitStack() as ending:
        ending.callback(holder.leave)
        worker = subprocess.Popen(
            [sys.executable, "-P", ROOT / "manage.py", *WORKER, f"127.0.0.1:{worker_port}"],
            env=environment(settled_home, **variables, PROMETHEUS_MULTIPROC_DIR=str(tmp_path / "worker")),
            stdin=subprocess.DEVNULL,
        )
        ending.callback(worker.wait, 60)
        ending.callback(worker.terminate)
        log = ending.enter_context((tmp_path / "causes.log").open("w"))
        causes = Causes(server_port, environment(settled_home, **variables), log)
        ending.callback(causes.process.communicate)
        server = serve(settled_home, port=server_port, **variables)
        causes.wait_for("ready")
        prometheus = Prometheus(tmp_path, ports, shortened(SHIPPED_RULES), evaluate="250ms")
        ending.callback(prometheus.end)
        yield Installation(server, worker, causes, prometheus)


# Preparing and starting the platform is slow on a busy machine.
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_every_alert_fires_by_its_cause(installation: Installation) -> None:
    prometheus = installation.prometheus
    everything = {"identity-platform": ["up"], "identity-worker": ["up"]}
    assert within(60, lambda: prometheus.health() == everything), prometheus.health()
    assert within(20, lambda: prometheus.count("identity_figures_age_seconds") > 0)
    # While the processes started some may have been down.
    assert within(20, lambda: prometheus.alerts() == set()), prometheus.alerts()

    installation.fire_one_by_one(CAUSED)
    installation.await_silence(WORKER_ENDED)
    installation.worker.terminate()
    installation.await_firing(WORKER_ENDED)
    installation.fire_one_by_one(CAUSED_WITHOUT_WORKER)
    installation.await_silence(PLATFORM_ENDED)
    installation.server.end()
    installation.await_firing(PLATFORM_ENDED)
