"""The README's lines work when pasted, in order, into a shell."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import requests

from tests.examples.form_browser import FormBrowser
from tests.machine.conftest import PRINTED, ROOT, Platform, environment, free_port, within

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WALK = re.compile(r"<!-- walk -->\s*```bash\n(.*?)```", re.DOTALL)
# That of the tutorial has a test of its own.
PAGES = [path for path in DOCUMENTS if path.name != "tutorial.md"]
WALKS = [(path, number) for path in PAGES for number, _ in enumerate(WALK.findall(path.read_text()))]


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A first start, and the variables that it prints."""
    home = tmp_path_factory.mktemp("home")
    log = home / "printed"
    with log.open("w") as into:
        platform = Platform(home, free_port(), into, LOG_LEVEL="WARNING", DEMO_PORT=str(free_port()))
        assert within(150, platform.is_up), log.read_text()
        exports = dict(re.findall(r"^export (\w+)=(.*)$", log.read_text(), re.MULTILINE))
        yield exports
        platform.process.terminate()
        assert platform.process.wait(60) == 0


def run_manage(newcomer: dict[str, str], *words: str) -> str:
    """Run a command in a shell that has none of the server's variables but its state folder."""
    variables = environment(Path(newcomer["IDENTITY_VAR"]), LOG_LEVEL="WARNING")
    del variables["DEMO_PORT"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *words],
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def demo(newcomer: dict[str, str]) -> str:
    return run_manage(newcomer, "demo")


def test_a_first_start_prints_what_the_walk_needs(newcomer: dict[str, str]) -> None:
    assert set(newcomer) >= {
        "IDENTITY_VAR",
        "BASE_URL",
        "TENANT_ID",
        "CLIENT_ID",
        "ADMIN_USERNAME",
        "ADMIN_PASSWORD",
        "OPERATOR_USERNAME",
        "OPERATOR_PASSWORD",
    }


def test_demo_command_prints_the_exports_again(newcomer: dict[str, str]) -> None:
    first = re.findall(r"^export .*$", (Path(newcomer["IDENTITY_VAR"]) / "printed").read_text(), re.MULTILINE)
    again = demo(newcomer)
    assert f"export BASE_URL={newcomer['BASE_URL']}\n" in again
    # An interactive zsh runs what is between backticks in a comment.
    assert re.findall(r"^#|`", again, re.MULTILINE) == []
    assert "Sign in to the sample application: http://127.0.0.1:" in again
    assert len(first) == len(newcomer)
    assert [line for line in again.splitlines() if line.startswith("export ")] == first


def test_demo_command_names_a_changed_password(settled_home: Path) -> None:
    here = {"IDENTITY_VAR": str(settled_home), "BASE_URL": "http://localhost:8000"}
    first = (settled_home / PRINTED).read_text()
    change = "from userflow.passwords.actions import set_admin_password as change; "
    run_manage(here, "shell", "--command", change + "change(username='demo-admin', password='another horse battery 9')")
    again = demo(here)
    assert "OPERATOR_PASSWORD" in again
    assert "export ADMIN_PASSWORD" in first
    assert "export ADMIN_PASSWORD" not in again
    assert "bin/manage changepassword demo-admin" in again


def test_printed_address_is_issuer_and_origin_of_passkeys(newcomer: dict[str, str]) -> None:
    address = newcomer["BASE_URL"]
    assert address.startswith("http://localhost:")
    assert f"Serving on {address}/ " in (Path(newcomer["IDENTITY_VAR"]) / "printed").read_text()
    with urllib.request.urlopen(f"{address}/.well-known/oauth-authorization-server") as response:
        assert json.load(response)["issuer"] == address
    with urllib.request.urlopen(f"{address}/demo/") as page:
        assert 'data-rp-id="localhost"' in page.read().decode()


def test_printed_user_signs_in_to_sample_application(newcomer: dict[str, str]) -> None:
    printed = (Path(newcomer["IDENTITY_VAR"]) / "printed").read_text()
    found = re.search(
        r"^Sign in to the sample application: (\S+) as (\S+) with the password (\S+)$", printed, re.MULTILINE
    )
    assert found, printed
    address, email, password = found.groups()
    browser = FormBrowser()
    assert within(60, lambda: answers(address))
    assert "You are not signed in." in browser.opens(address)
    browser.opens("/login")
    assert browser.page.url.startswith(f"{newcomer['BASE_URL']}/t/demo/authorize?")
    assert f"({email})" in browser.signs_in(email, password)
    assert browser.page.url == address
    assert "You are not signed in." in browser.opens("/logout")
    # The session of the browser at the tenant has ended too.
    browser.opens("/login")
    assert browser.page.url.startswith(f"{newcomer['BASE_URL']}/t/demo/authorize?")


def answers(address: str) -> bool:
    try:
        return requests.get(address, timeout=30).ok
    except requests.ConnectionError:
        return False


BASH = ("bash", "-euo", "pipefail")
# As a user's own: interactive, so comments begin with an option that the walk sets. It ends at the first error too.
ZSH = ("zsh", "-f", "-i", "-s", "-e", "-o", "pipefail")


def run_walk(script: str, newcomer: dict[str, str], shell: Sequence[str] = BASH) -> str:
    """Run the block as a script that ends at the first error; return what it prints."""
    done = subprocess.run(
        shell,
        input=script,
        env={"PATH": os.environ["PATH"], "HOME": newcomer["IDENTITY_VAR"], **newcomer},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def test_user_of_the_tutorial_signs_in_on_the_hosted_page(newcomer: dict[str, str]) -> None:
    (script,) = WALK.findall((ROOT / "docs/tutorial.md").read_text())
    last = run_walk(script, newcomer).splitlines()[-1]
    found = re.fullmatch(r"Sign in to the sample application as (\S+) with the password (.+)\.", last)
    assert found, last
    browser = FormBrowser()
    printed = (Path(newcomer["IDENTITY_VAR"]) / "printed").read_text()
    browser.opens(re.findall(r"sample application: (\S+) as", printed)[0])
    browser.opens("/login")
    assert f"({found[1]})" in browser.signs_in(found[1], found[2])


@pytest.mark.needs("zsh")
@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_newcomers_walk_works_in_zsh(page: str, newcomer: dict[str, str]) -> None:
    (script,) = WALK.findall((ROOT / page).read_text())
    run_walk(script, newcomer, ZSH)


@pytest.mark.parametrize(("document", "number"), WALKS, ids=[f"{path.name}-{number}" for path, number in WALKS])
def test_a_walk_works_line_by_line(document: Path, number: int, newcomer: dict[str, str]) -> None:
    run_walk(WALK.findall(document.read_text())[number], newcomer)
