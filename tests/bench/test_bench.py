"""bin/bench in its smoke mode: it measures and writes results."""

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bench import curves, load, published
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


@pytest.mark.nightly
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
        "curves",
        "import",
        "--smoke",
        "--results",
        str(tmp_path / "out"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IDENTITY_VAR": str(tmp_path / "var"), "COLUMNS": "150"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    [found] = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json")]
    targets = [row["target"] for row in found["rows"]]
    assert targets[:11] == ["1", "6", "6", "6", "–", "7", "7", "7", "–", "–", "–"]
    assert targets[11:20] == ["16", "17", "18", "18", "15", "15", "15", "15", "12"]
    # One kind of list more where the server has pg_trgm.
    lists = targets.count("9")
    assert lists in (7, 8)
    assert targets[20 + lists : 26 + lists] == ["–", "–", "–", "–", "–", "14"]
    peers = {"platform", "django-allauth", "better-auth", "fastapi-users"}
    assert found["samples"]["peers_login"].keys() == peers | {"hash"}
    assert found["samples"]["peers_read"].keys() == peers | {"drf", "wsgi"}
    assert found["samples"]["peers_refresh"].keys() == {"platform", "django-allauth"}
    [refreshed] = found["samples"]["peers_refresh"]["platform"]
    # Each of eight connections used the token of the response before.
    assert refreshed["statuses"]["200"] > 8
    assert found["samples"]["import"]["rows"] == 300
    assert {samples[0]["statuses"]["200"] for samples in found["samples"]["factors"].values()} == {30}
    assert {name for name, samples in found["samples"]["read"].items() if samples[0]["answers"]} == {"platform", "bare"}
    for curve in published.CURVES:
        at, lines = curve.values(found["samples"])
        assert all(len(values) == len(at) and min(values) >= 0 for values in lines.values())
    [command_of_read] = {row["run"]["command"] for row in found["rows"] if row["measurement"] == "read"}
    assert command_of_read.endswith("bin/bench read --rounds 1 --seconds 0.15")
    assert found["about"]["load_average_before"]
    assert 0 <= found["about"]["steal_percent"] <= 100
    assert not (tmp_path / "var" / "bench").exists()


@pytest.mark.nightly
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


ROW = Row("1", "a read", ours="10/s", against="bare: 20/s", ratio=0.5, wanted="≥ 1.3", met=False, measurement="read")
RUN = {
    "began": "2030-01-01T10:00:00+00:00",
    "command": "bin/bench read",
    "commit": "abc1234",
    "web_threads": 16,
    "load_average_before": [0.1, 0.1, 0.1],
    "load_average_after": [1.5, 0.3, 0.2],
    "steal_percent": 0.2,
    "seconds": 25.0,
}


def test_run_on_a_machine_that_others_use_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, [ROW], {}, {"read": {**RUN, "steal_percent": 5.1}}, {})
    assert "| 5.1 (repeat) |" in path.read_text()


def test_missed_target_is_marked(tmp_path: Path) -> None:
    path = write(tmp_path, [ROW], {}, {"read": RUN}, {})
    assert "| 1 | a read | 10/s | bare: 20/s | 0.50 | ≥ 1.3 | NO |" in path.read_text()


def test_run_keeps_the_results_of_other_measurements(tmp_path: Path) -> None:
    write(tmp_path, [ROW], {}, {"read": RUN}, {"read": {"platform": []}})
    write(tmp_path, [replace(ROW, what="a list", measurement="list")], {}, {"list": RUN}, {"list": {"platform": []}})
    found = json.loads((tmp_path / "bench.json").read_text())
    assert [row["what"] for row in found["rows"]] == ["a read", "a list"]
    assert found["samples"].keys() == {"read", "list"}


def test_tables_of_the_documentation_are_those_of_the_results() -> None:
    document = json.loads((ROOT / "bench/results/bench.json").read_text())
    for name, blocks in published.tables(document).items():
        page = (ROOT / name).read_text()
        assert published.filled(page, blocks) == page, f"{name}: run bin/bench --publish"


def sample(rate: float) -> dict[str, float]:
    return {"per_second": rate, "server_us": 700.0, "postgres_us": 300.0, "p50_ms": 5.0, "p99_ms": 20.0}


def test_table_has_a_dash_for_what_is_not_measured() -> None:
    samples = {"peers_login": {"hash": [sample(90)], "platform": [sample(110), sample(130), sample(120)]}}
    table = published.tables({"rows": [], "samples": samples})["README.md"]["requests"]
    [login] = [line for line in table.splitlines() if line.startswith("| login |")]
    assert login == "| login | 120/s, 1 ms | – | – | – | – | – | 90/s, 1 ms | – | – | `bin/bench peers` |"
    [tenant] = [line for line in table.splitlines() if line.startswith("| new tenant |")]
    assert tenant.count("| – ") == 9


def test_results_are_published_in_pages_and_plots(tmp_path: Path) -> None:
    for name in ("README.md", "docs/performance.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    users = {"1000": [sample(2000)], "1000000": [sample(1900)]}
    latency = {"alone": {"p99_ms": 9.0}, "beside": {"p99_ms": 40.0}, "logins": 300, "refused": 100, "seconds": 3.0}
    samples = {
        "curves_threads": {"2": [sample(2100)], "16": [sample(2000)]},
        "curves_logins": {"2": [latency], "16": [latency]},
        "curves_tenants": {"1": [sample(2000)], "500": [sample(1500)]},
        "curves_tenants_tight": {"1": [sample(2000)], "500": [sample(300)]},
        "curves_users": users,
    }
    (tmp_path / "bench.json").write_text(json.dumps({"rows": [{**asdict(ROW), "run": RUN}], "samples": samples}))
    published.publish(tmp_path, tmp_path)
    page = (tmp_path / "docs/performance.md").read_text()
    assert "| 1 | a read | 10/s | bare: 20/s | 0.50 | ≥ 1.3 | **no** | `bin/bench read` | 2030-01-01, abc1234" in page
    assert "| 16 | 2,000/s | 0.7 ms | 0.3 ms | 9 ms | 40 ms | 100/s | 25% |" in page
    assert "| 500 | 1,500/s | 0.7 ms | 0.3 ms | 300/s | 0.7 ms | 0.3 ms |" in page
    assert "| 1,000,000 | 1,900/s |" in page
    for curve in published.CURVES:
        assert f"](images/{curve.file}.svg)" in page
        assert f"{curve.title} ({curve.unit})" in (tmp_path / f"docs/images/{curve.file}.svg").read_text()
    assert "1,000,000" in (tmp_path / "docs/images/curve-users.svg").read_text()
