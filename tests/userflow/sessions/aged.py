"""Access tokens of the same session with another age or another proof, as a refresh or a step-up gives them."""

import base64
import json
from datetime import timedelta
from uuid import UUID

from django.utils.timezone import now

from tenants import lookup
from userflow.sessions import issue


def strong(token: str) -> str:
    """A token of the same session that has proven a second factor now."""
    return aged(token, 0, amr=("pwd", "otp"))


def aged(token: str, minutes: int, *, amr: tuple[str, ...] = ("pwd",)) -> str:
    """A token of the same session whose last proof was that long ago."""
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    subject = issue.TokenSubject(
        claims["kind"],
        UUID(claims["sub"]),
        UUID(claims["tenant_id"]) if claims["tenant_id"] else None,
        UUID(claims["client_id"]) if claims["client_id"] else None,
        (),
        (),
    )
    # The issuer and the key of an end user's token are those of the tenant.
    tenant = lookup.find(subject.tenant_id) if subject.tenant_id else None
    then = now() - timedelta(minutes=minutes)
    token, _ = issue.access_token(
        subject,
        UUID(claims["sid"]),
        amr=amr,
        auth_time=int(then.timestamp()),
        ends=now() + timedelta(hours=1),
        tenant=tenant,
    )
    return token
