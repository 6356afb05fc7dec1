"""Access tokens of a sign-in that is long ago, which nobody can wait for."""

import base64
import json
from datetime import timedelta
from uuid import UUID

from django.utils.timezone import now

from userflow.tokens import issue


def aged(token: str, minutes: int) -> str:
    """A token of the same session, as refreshing gives it when the sign-in was that long ago."""
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    speaker = issue.Speaker(
        claims["kind"],
        UUID(claims["sub"]),
        UUID(claims["tenant_id"]) if claims["tenant_id"] else None,
        UUID(claims["client_id"]) if claims["client_id"] else None,
        (),
        (),
    )
    then = now() - timedelta(minutes=minutes)
    token, _ = issue.access_token(
        speaker, UUID(claims["sid"]), amr=("pwd",), auth_time=then, ends=now() + timedelta(hours=1), route=None
    )
    return token
