"""What the report of `doctor` must not contain: secrets of settings, of the environment and of URLs."""

from pathlib import Path
from typing import Any

import pytest

from console.support_bundle.redaction import REDACTED, SettingsFilter, redacted_settings, without_secrets


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SECRET_KEY", "s3cret-value"),
        ("METRICS_TOKEN", "s3cret-value"),
        ("DATABASES", {"default": {"PASSWORD": "s3cret-value", "OPTIONS": {"sslpassword": "s3cret-value"}}}),
        ("LOCATION", ["rediss://user:s3cret-value@cache.internal:6379/0"]),
        ("SMS_HTTP_URL", "https://sms.example/send?account=7&code=s3cret-value"),
        ("DIRECTORY_CLOUDS", {"mine": ("https://user:s3cret-value@login.example", "https://graph.example")}),
        ("TOKEN_ISSUER", "https://user:s3cret-value@id.example.org"),
    ],
)
def test_settings_lose_their_secrets(name: str, value: object) -> None:
    shown = str(SettingsFilter().cleanse_setting(name, value))
    assert "s3cret-value" not in shown
    assert REDACTED in shown


def test_settings_keep_numbers_and_addresses() -> None:
    shown = redacted_settings()
    for name in ("ACCESS_TOKEN_SECONDS", "TOKEN_ISSUER", "WEBAUTHN_RP_ID", "ALLOWED_HOSTS", "LIMITS"):
        assert REDACTED not in str(shown[name]).replace(f"'{REDACTED}'", "", 2), name
    assert shown["SECRET_KEY"] == shown["ENCRYPTION_KEYS"] == REDACTED
    assert "INSTALLED_APPS" not in shown


def test_quoted_secrets_are_replaced_everywhere(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("fr0m-a-file\n")
    settings.ENCRYPTION_KEYS = "k2:c2Vjb25kLWtleQ==,k1:Zmlyc3Qta2V5LXg="
    monkeypatch.setenv("SMS_HTTP_TOKEN_FILE", str(file))
    monkeypatch.setenv("SOME_ADDRESS", "https://ann:pa%24%24w0rd@example.org/?access_token=quer1ed")
    monkeypatch.setenv("OTHER_API_KEY", 'with"quote\\s')
    secrets = [
        "c2Vjb25kLWtleQ==",
        "Zmlyc3Qta2V5LXg=",
        "fr0m-a-file",
        "pa%24%24w0rd",
        "pa$$w0rd",
        "quer1ed",
        'with"quote\\s',
    ]
    cleaned = without_secrets({"errors": [f"could not use {secret}." for secret in secrets], "k" + secrets[3]: 1})
    assert cleaned == {"errors": [f"could not use {REDACTED}."] * len(secrets), f"k{REDACTED}": 1}
