"""bin/bench in its smoke mode: it measures and writes results."""

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import curves, load
from bench.report import write
from bench.run import Row

ROOT = Path(__file__).resolve().parent.parent.parent


class Responder(http.server.BaseHTTPRequestHandler):
    """Return 200 for /good and 503 otherwise."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/good" else 503)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a small HTTP server."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Responder) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


@pytest.mark.timeout(300)
def test_run_measures_both_subjects_and_writes_results(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-P",
        "-m",
        "bench",
        "read",
        "peers",
        "backends",
        "factors",
        "ratelimit",
        "crowd",
        "import",
        "--smoke",
        "--results",
        str(tmp_path / "out"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IDENTITY_VAR": str(tmp_path / "var"), "COLUMNS": "150"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stderr
    [found] = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json")]
    targets = [row["target"] for row in found["rows"]]
    assert targets[:10] == ["1", "6", "6", "6", "–", "7", "7", "7", "–", "–"]
    assert targets[10:23] == ["16", "17", "18", "18", "15", "15", "15", "15", "12", "9", "9", "9", "14"]
    peers = {"platform", "django-allauth", "better-auth", "fastapi-users"}
    assert found["samples"]["peers_login"].keys() == peers | {"hash"}
    assert found["samples"]["peers_read"].keys() == peers | {"drf", "wsgi"}
    assert found["samples"]["import"]["rows"] == 300
    assert {samples[0]["statuses"]["200"] for samples in found["samples"]["factors"].values()} == {30}
    assert {name for name, samples in found["samples"]["read"].items() if samples[0]["answers"]} == {"platform", "bare"}
    assert found["about"]["load_average_before"]
    assert 0 <= found["about"]["steal_percent"] <= 100
    assert not (tmp_path / "var" / "bench").exists()


def test_curves_have_every_value_and_plot(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.curves", "--smoke", "--results", str(tmp_path), "--images", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IDENTITY_VAR": str(tmp_path / "var")}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150)
    assert ended.returncode == 0, ended.stderr
    steps = json.loads((tmp_path / "curves.json").read_text())["steps"]
    assert list(steps) == ["2"]
    assert all(values.keys() == curves.HEADS.keys() and min(values.values()) > 0 for values in steps.values())
    # One for each tenant, at least.
    assert steps["2"]["connections"] >= 2
    for name, (title, unit, _) in curves.PLOTS.items():
        assert f"{title} ({unit})" in (tmp_path / f"{name}.svg").read_text()
        assert "<script" not in (tmp_path / f"{name}.svg").read_text()


def test_client_counts_responses_by_status(port: int) -> None:
    for _ in range(10):  # again where the machine was busy
        counted = load.run(port=port, requests=[request("/good"), request("/bad")], connections=3, seconds=0.5)
        if counted["answers"] > 10:
            break
    assert counted["answers"] == sum(counted["statuses"].values()) > 10
    assert abs(counted["statuses"][200] - counted["statuses"][503]) <= 3
    assert counted["p50_ms"] <= counted["p99_ms"] <= counted["longest_ms"]


def test_client_keeps_its_rate(port: int) -> None:
    for _ in range(10):  # again where the machine was busy: then it is late, but never early
        counted = load.run(port=port, requests=[request("/good")], connections=4, seconds=0.5, per_second=40)
        assert counted["answers"] <= 21
        if counted["answers"] >= 18:
            break
    assert counted["answers"] >= 18


def test_run_on_a_machine_that_others_use_says_so(tmp_path: Path) -> None:
    row = Row("1", "a read", ours="10/s", against="bare: 20/s", ratio=0.5, wanted="≥ 1.3", met=False)
    assert (
        "| 5.1 (repeat) |"
        in write(tmp_path, [row], {"began": "2030-01-01T10:00:00+00:00", "steal_percent": 5.1}, {}).read_text()
    )


def test_missed_target_is_marked(tmp_path: Path) -> None:
    row = Row("1", "a read", ours="10/s", against="bare: 20/s", ratio=0.5, wanted="≥ 1.3", met=False)
    path = write(tmp_path, [row], {"began": "2030-01-01T10:00:00+00:00"}, {})
    assert "| 1 | a read | 10/s | bare: 20/s | 0.50 | ≥ 1.3 | NO |" in path.read_text()
