"""What has arrived by mail."""

import re
from typing import Any

from django.core import mail as django_mail

from userflow import mail


def mails_to(address: str, about: str = "") -> list[Any]:
    """Everything that was sent to the address so far, oldest first; `about` is a part of the subject."""
    assert mail.settle(60)
    return [sent for sent in django_mail.outbox if sent.to == [address] and about in sent.subject]


def token_in(sent: Any) -> str:
    """The token of a mail: it stands alone on a line, and behind the `#` of the link."""
    (token,) = re.findall(r"^((?:p|[0-9a-f]{32})\.[A-Za-z0-9_-]{43})$", sent.body, re.MULTILINE)
    assert f"#token={token}\n" in sent.body
    return str(token)


def code_in(sent: Any) -> str:
    """The six digits of a mail."""
    (code,) = re.findall(r"\b([0-9]{6})\b", sent.body)
    return str(code)
