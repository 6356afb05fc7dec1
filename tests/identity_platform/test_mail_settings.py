"""EMAIL_URL: the mail server in one variable."""

from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.mail import EmailMessage, get_connection

from identity_platform.environment import mail


def test_smtp_url_decodes_the_password() -> None:
    found = mail("smtp://post%40acme.example:p%40ss%2Fw@mail.example:2525")
    assert (found["EMAIL_HOST"], found["EMAIL_PORT"]) == ("mail.example", 2525)
    assert (found["EMAIL_HOST_USER"], found["EMAIL_HOST_PASSWORD"]) == ("post@acme.example", "p@ss/w")
    assert (found["EMAIL_USE_TLS"], found["EMAIL_USE_SSL"]) == (True, False)
    assert found["EMAIL_TIMEOUT"] == 10


def test_smtps_url_uses_implicit_tls() -> None:
    found = mail("smtps://mail.example")
    assert (found["EMAIL_PORT"], found["EMAIL_USE_TLS"], found["EMAIL_USE_SSL"]) == (465, False, True)


def test_smtp_url_can_disable_starttls() -> None:
    found = mail("smtp://localhost:25?tls=off")
    assert (found["EMAIL_PORT"], found["EMAIL_USE_TLS"], found["EMAIL_HOST_USER"]) == (25, False, "")


def test_file_and_console_urls_select_their_backends() -> None:
    assert mail("file:/var/outbox/my%20mail")["EMAIL_FILE_PATH"] == Path("/var/outbox/my mail")
    assert mail("console:")["EMAIL_BACKEND"].endswith("console.EmailBackend")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mail.example",
        "http://mail.example",
        "smtp://",
        "smtp://h:0",
        "smtp://h:99999",
        "smtp://h?tls=maybe",
        "file:",
    ],
)
def test_invalid_email_url_is_rejected(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="EMAIL_URL must be"):
        mail(url)


def test_email_url_error_hides_the_password() -> None:
    with pytest.raises(ImproperlyConfigured) as error:
        mail("smtp://post:s3cret-w0rd@mail.example:99999")
    assert "s3cret" not in str(error.value)


def test_mail_files_are_readable_by_their_owner_only(tmp_path: Path, settings: Any) -> None:
    for folder in (tmp_path / "there", tmp_path / "new" / "mail"):
        if folder.name == "there":
            folder.mkdir(mode=0o755)
        for name, value in mail(f"file:{folder}").items():
            setattr(settings, name, value)
        assert get_connection().send_messages([EmailMessage("Reset", "a token", to=["ann@example.com"])]) == 1
        [file] = folder.iterdir()
        assert oct(file.stat().st_mode & 0o777) == "0o600"
        assert b"a token" in file.read_bytes()
