"""`doctor` where servers are away, and with a secret in every variable that can have one."""

import json
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

from django.conf import settings
from django.db import connection

from tests.architecture.test_configuration_page import read_variables
from tests.machine.conftest import ROOT, environment
from tests.machine.test_command_line import GONE

KEY = b64encode(b"s3cret-encryption-key-of-32-byte").decode()
# Every variable with a secret, and all further variables with a word of secrets in their names are no secrets.
SECRETS = {
    "SECRET_KEY": f"s3cret-of-django-{'x' * 50}",
    "METRICS_TOKEN": "s3cret-of-metrics",
    "SMS_TWILIO_AUTH_TOKEN": "s3cret-of-twilio",
    "SMS_HTTP_TOKEN": "s3cret-of-sms",
    "AWS_ACCESS_KEY_ID": "s3cret-of-bucket-id",
    "AWS_SECRET_ACCESS_KEY": "s3cret-of-bucket",
    "AWS_SESSION_TOKEN": "s3cret-of-bucket-session",
    "DJANGO_SUPERUSER_PASSWORD": "s3cret-of-operator",
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=s3cret-of-collector",
}
NO_SECRETS = {
    "ACCESS_TOKEN_SECONDS",
    "CACHE_KEY_PREFIX",
    "CLIENT_SECRET_OVERLAP_SECONDS",
    "LIMIT_WRONG_SECRETS_PER_10_MINUTES",
    "PASSWORD_BLOCKLIST",
    "PASSWORD_RESET_URL",
    "REFRESH_TOKEN_SECONDS",
    "TOKEN_AUDIENCE",
    "TOKEN_ISSUER",
    "WEBHOOK_SECRET_OVERLAP_SECONDS",
}


def doctor(folder: Path, **variables: str) -> tuple[int, str, str]:
    """Run the command in a process of its own; return exit code, both outputs, and the report."""
    done = subprocess.run(
        [sys.executable, ROOT / "manage.py", "doctor", "--output", "report.json", "--skip-tenants"],
        env=environment(folder) | GONE | variables,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr, (folder / "report.json").read_text()


def test_report_is_written_while_the_servers_are_away(tmp_path: Path) -> None:
    code, printed, report = doctor(tmp_path)
    sections = json.loads(report)["sections"]
    assert code == 1
    assert sections["global database"]["problems"] == ["Could not be read: the database does not answer."]
    assert sections["cache"]["problems"] == ["The cache does not respond (ConnectionError)."]
    assert sections["tasks"]["notes"] == ["Not read: it needs the global database."]
    # The checks that need no database have run.
    assert "tenants.W" not in str(sections["checks"]["problems"])
    assert sections["checks"]["facts"]["messages"]
    assert sections["versions"]["problems"] == []
    assert "Traceback" not in printed


def test_report_contains_no_secret_of_any_variable(tmp_path: Path) -> None:
    words = ("SECRET", "PASSWORD", "TOKEN", "KEY", "CREDENTIAL")
    named = {name for name in read_variables() if any(word in name for word in words)}
    assert named - SECRETS.keys() - {"ENCRYPTION_KEYS"} == NO_SECRETS
    there = connection.settings_dict
    password = str(there["PASSWORD"]) or "s3cret-of-database"
    host = quote(str(there["HOST"]), safe="")
    url = f"postgresql://{there['USER']}:{quote(password)}@{host}:{there['PORT']}/{there['NAME']}"
    code, printed, report = doctor(
        tmp_path,
        **SECRETS,
        ENCRYPTION_KEYS=f"k1:{KEY}",
        DATABASE_URL=f"{url}?sslpassword=s3cret-of-certificate",
        DATABASE_ADMIN_URL=url,
        REDIS_URL="redis://ann:s3cret-of-cache@127.0.0.1:1/0?password=s3cret-of-query",
        EMAIL_URL="smtp://ann:s3cret-of-mail@mail.example.org:587",
        SMS_HTTP_URL="https://ann:s3cret-of-url@sms.example.org/send?code=s3cret-of-url-query",
    )
    sections = json.loads(report)["sections"]
    # Everything was read, with the keys of another installation too.
    assert sections["global database"]["facts"]["postgresql"]
    assert sections["settings"]["facts"]["EMAIL_HOST"] == "mail.example.org"
    assert code == 1
    for secret in ("s3cret", KEY, password, settings.SECRET_KEY):
        assert secret not in report + printed
