"""`bin/bench keycloak`: it signs in at both programs, measures both, and its results are published."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from bench import java, journey, published
from bench.measures.keycloak import OPERATIONS

ROOT = Path(__file__).resolve().parent.parent.parent
CALLBACK = "https://app.example.com/callback"
LANGUAGES = '<form action="/language"><select name="language"></select><button name="set" value="1">Set</button></form>'
ADDRESS = (
    '<form method="post"><input type="hidden" name="token" value="t&amp;1"><input type="email" name="email"></form>'
)
BOTH = """<form method="post" action="/secret?a=1&amp;b=2"><input name="username" type="text">
<input type="password" name="password">
<input type="checkbox" name="remember"><button name="go" value="in">Go</button><button name="other">Other</button></form>"""


class Provider(BaseHTTPRequestHandler):
    """A provider whose sign-in is one page or, below /two, two."""

    protocol_version = "HTTP/1.1"
    posted: list[dict[str, list[str]]]

    def do_GET(self) -> None:
        path = urlsplit(self.path)
        self.server.state = parse_qs(path.query).get("state", [""])[0] or self.server.state  # type: ignore[attr-defined]
        self.respond(LANGUAGES + (ADDRESS if path.path == "/two" else BOTH), cookie="browser=b; Path=/; HttpOnly")

    def do_POST(self) -> None:
        body = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode(), keep_blank_values=True)
        self.posted.append({**body, "path": [self.path], "cookie": [self.headers.get("Cookie", "")]})
        if self.path == "/token":
            self.respond(json.dumps({"access_token": body["code"][0], "refresh_token": "r"}))
        elif "password" in body:
            self.respond("", location=f"{CALLBACK}?code=c&state={self.server.state}")  # type: ignore[attr-defined]
        else:
            self.respond(LANGUAGES + BOTH)

    def respond(self, page: str, *, cookie: str = "", location: str = "") -> None:
        self.send_response(303 if location else 200)
        for name, value in (("Set-Cookie", cookie), ("Location", location), ("Content-Length", str(len(page)))):
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    Provider.posted = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        server.state = ""  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize(("path", "requests"), [("/one", 3), ("/two", 4)])
def test_journey_follows_one_page_or_two(port: int, path: str, requests: int) -> None:
    job = journey.SignIn(path, "/token", "app", CALLBACK, "ann@example.com", "secret word")
    tokens, sent = journey.sign_in(HTTPConnection("127.0.0.1", port), job)
    assert (tokens["access_token"], sent) == ("c", requests)
    secret, token = Provider.posted[-2:]
    assert secret == {
        "username": ["ann@example.com"],
        "password": ["secret word"],
        "go": ["in"],
        "path": ["/secret?a=1&b=2"],
        "cookie": ["browser=b"],
    }
    assert (token["client_id"], token["grant_type"]) == (["app"], ["authorization_code"])
    assert [post["email"] for post in Provider.posted[:-2]] == [["ann@example.com"]] * (requests - 3)


def test_journey_counts_sign_ins_of_several_callers(port: int) -> None:
    job = journey.SignIn("/two", "/token", "app", CALLBACK, "ann@example.com", "secret word")
    counted = journey.run(port=port, journeys=[job], connections=1, seconds=0.2)
    assert counted["statuses"] == {200: counted["answers"]}
    assert counted["requests_of_each"] == 4
    assert 0 < counted["p50_ms"] <= counted["p99_ms"] <= counted["longest_ms"]


def test_page_without_a_form_fails(port: int) -> None:
    browser = journey.Browser(HTTPConnection("127.0.0.1", port))
    browser.page = LANGUAGES
    with pytest.raises(journey.SignInFailed):
        browser.follow_until(CALLBACK, "ann@example.com", "secret word")


@pytest.mark.parametrize("kind", ["JAVA_HOME", "PATH"])
def test_java_of_the_environment_is_found(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "java"
    program.write_text("#!/bin/sh\necho 'openjdk version \"99.0.1\" 2030-01-01' >&2\n")
    program.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv(kind, str(tmp_path) if kind == "JAVA_HOME" else f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert java.java_home(98) == tmp_path


def test_missing_java_is_named() -> None:
    with pytest.raises(java.JavaMissing, match="needs Java 1000 or newer"):
        java.java_home(1000)


@pytest.mark.nightly
@pytest.mark.needs("mvn")
@pytest.mark.timeout(1200)
def test_both_programs_are_measured(tmp_path: Path) -> None:
    try:
        java.java_home(21)
    except java.JavaMissing as missing:
        pytest.skip(str(missing))
    out = tmp_path / "out"
    command = [sys.executable, "-P", "-m", "bench", "keycloak", "--smoke", "--realms", "1", "--results", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IDENTITY_VAR": str(tmp_path / "var"), "COLUMNS": "150"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1180)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    document = json.loads((out / "bench.json").read_text())
    for operation in OPERATIONS:
        samples = document["samples"][f"keycloak_{operation.name}"]
        assert {name: taken[0]["answers"] > 0 for name, taken in samples.items()} == {
            "platform": True,
            "keycloak": True,
        }
    assert {row["target"] for row in document["rows"]} == {*map(str, range(25, 33))}
    tables = published.tables(document)
    assert "| start with 1 of them |" in tables["README.md"]["requests"]
    assert "A hosted sign-in is" in tables["docs/performance.md"]["keycloak"]
