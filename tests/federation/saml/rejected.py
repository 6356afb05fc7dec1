"""The assertion that a response is rejected, and why."""

from datetime import datetime

import pytest

from federation.saml.rejections import AssertionRejected, Reason
from tests.federation.saml.identity_provider import NOW, Signer, read


def rejection(document: bytes, *signers: Signer, now: datetime = NOW) -> AssertionRejected:
    """Return the error with which the platform rejects a response."""
    with pytest.raises(AssertionRejected) as caught:
        read(document, *signers, now=now)
    return caught.value


def reason(document: bytes, *signers: Signer, now: datetime = NOW) -> Reason:
    return rejection(document, *signers, now=now).reason


def problem(document: bytes, *signers: Signer) -> tuple[Reason, str]:
    """Return the reason, and what the log says was received."""
    error = rejection(document, *signers)
    return error.reason, error.received
