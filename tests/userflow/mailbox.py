"""Read the mails that the platform sent."""

import re
from typing import Any

from django.core import mail as django_mail

from userflow.mail_delivery import background


def mails_to(address: str, about: str = "") -> list[Any]:
    """Return the mails to this address, oldest first. `about` is part of the subject."""
    assert background.settle(60)
    return [sent for sent in django_mail.outbox if sent.to == [address] and about in sent.subject]


def token_in(sent: Any) -> str:
    """Return the token of a mail: it is on a line of its own and after the `#` of the link."""
    (token,) = re.findall(r"^((?:p|[0-9a-f]{32})\.[A-Za-z0-9_-]{43})$", sent.body, re.MULTILINE)
    assert f"#token={token}\n" in sent.body
    return str(token)


def code_in(sent: Any) -> str:
    """Return the six digits of a mail."""
    (code,) = re.findall(r"\b([0-9]{6})\b", sent.body)
    return str(code)
