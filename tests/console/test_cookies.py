"""Cookies of the console: in production no other host and no subdomain can set or read them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.db import connection
from django.test import Client

from tests.console.staff import new_operator
from tests.machine.conftest import ROOT
from tests.world import PASSWORD

# Signs in and asks for a link, which sets a message; prints the cookies.
VISIT = """
import json, os
from django.test import Client
browser = Client(headers={"host": "id.example.org"})
browser.get("/admin/login/", secure=True)
browser.post("/admin/forgotten/", {"email": "unknown@example.com"}, secure=True)
browser.post("/admin/login/", {"username": os.environ["NAME"], "password": os.environ["WORD"]}, secure=True)
print(json.dumps({name: dict(morsel) for name, morsel in browser.cookies.items()}))
"""


def kept_in_production(home: Path, username: str) -> dict[str, dict[str, Any]]:
    """Return the cookies of a process with production settings, on the servers of the tests."""
    there = connection.settings_dict
    host, secret = quote(str(there["HOST"]), safe=""), quote(str(there["PASSWORD"]), safe="")
    environment = {
        "PATH": os.environ["PATH"],
        "IDENTITY_VAR": str(home),
        "DATABASE_URL": f"postgresql://{there['USER']}:{secret}@{host}:{there['PORT']}/{there['NAME']}",
        "PGBOUNCER": str(settings.PGBOUNCER),
        "REDIS_URL": settings.REDIS_URL,
        "SECRET_KEY": "s" * 50,
        "ENCRYPTION_KEYS": settings.ENCRYPTION_KEYS,
        "ALLOWED_HOSTS": "id.example.org",
        "EMAIL_URL": "console:",
        "NAME": username,
        "WORD": PASSWORD,
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "shell", "--command", VISIT],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return dict(json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{"))))


def test_production_cookies_carry_the_host_prefix(tmp_path: Path, operator_name: str) -> None:
    kept = kept_in_production(tmp_path, operator_name)
    assert set(kept) == {"__Host-csrftoken", "__Host-messages", "__Host-sessionid"}
    for cookie in kept.values():
        assert (cookie["secure"], cookie["path"], cookie["domain"]) == (True, "/", "")


def test_console_reads_its_own_session_cookie_only() -> None:
    operator = new_operator().sign_in()
    name = settings.SESSION_COOKIE_NAME
    other = "sessionid" if name.startswith("__Host-") else "__Host-sessionid"
    thief = Client()
    thief.cookies[other] = operator.browser.cookies[name].value
    assert thief.get("/admin/").status_code == 302
    thief.cookies[name] = operator.browser.cookies[name].value
    assert thief.get("/admin/").status_code == 200


def test_only_console_replaces_a_broken_form_cookie() -> None:
    browser = Client()
    name = settings.CSRF_COOKIE_NAME
    browser.cookies[name] = "broken"
    assert not browser.get("/.well-known/security.txt").cookies, "The API reads no cookies."
    assert browser.get("/admin/login/").cookies[name].value != "broken"
