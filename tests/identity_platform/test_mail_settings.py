"""EMAIL_URL: one variable for where mails go."""

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from identity_platform.environment import mail


def test_smtp_with_starttls_and_a_password_with_signs() -> None:
    found = mail("smtp://post%40acme.example:p%40ss%2Fw@mail.example:2525")
    assert (found["EMAIL_HOST"], found["EMAIL_PORT"]) == ("mail.example", 2525)
    assert (found["EMAIL_HOST_USER"], found["EMAIL_HOST_PASSWORD"]) == ("post@acme.example", "p@ss/w")
    assert (found["EMAIL_USE_TLS"], found["EMAIL_USE_SSL"]) == (True, False)
    assert found["EMAIL_TIMEOUT"] == 10


def test_smtps_has_tls_from_the_start() -> None:
    found = mail("smtps://mail.example")
    assert (found["EMAIL_PORT"], found["EMAIL_USE_TLS"], found["EMAIL_USE_SSL"]) == (465, False, True)


def test_starttls_can_be_left_out_for_a_relay_on_the_machine() -> None:
    found = mail("smtp://localhost:25?tls=off")
    assert (found["EMAIL_PORT"], found["EMAIL_USE_TLS"], found["EMAIL_HOST_USER"]) == (25, False, "")


def test_a_folder_and_the_console() -> None:
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
def test_nonsense_is_refused(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="EMAIL_URL must be"):
        mail(url)


def test_a_password_in_it_stays_out_of_the_message() -> None:
    with pytest.raises(ImproperlyConfigured) as error:
        mail("smtp://post:s3cret-w0rd@mail.example:99999")
    assert "s3cret" not in str(error.value)
