"""Access tokens of the same session with another age or another proof, as a refresh or a step-up gives them."""

import base64
import json
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils.timezone import now

from tenants.entering import lookup
from tenants.entering.context import in_tenant
from userflow.accounts.session_policy import AAL2
from userflow.credentials import tickets
from userflow.sessions import issue

TWO_FACTORS = ("pwd", "otp")


def strong(token: str) -> str:
    """A token of the same session that has proven a second factor now, which is stored too."""
    claims = _claims_of(token)
    with _entered(claims):
        sessions = issue.realm_of(claims["kind"]).sessions._default_manager.filter(pk=claims["sid"])
        sessions.update(auth_time=now(), amr=list(TWO_FACTORS), acr=AAL2)
    return aged(token, 0, amr=TWO_FACTORS)


def proof_token(token: str) -> str:
    """A proof token of a step-up by a factor in the session of this token."""
    claims = _claims_of(token)
    with _entered(claims):
        realm = issue.realm_of(claims["kind"])
        user = realm.users._default_manager.get(pk=claims["sub"])
        return tickets.issue_ticket(realm, user, tickets.PROOF, amr=("otp",), session_id=UUID(claims["sid"]))


def _claims_of(token: str) -> dict[str, Any]:
    return dict(json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "==")))


def _entered(claims: dict[str, Any]) -> AbstractContextManager[Any]:
    return in_tenant(UUID(claims["tenant_id"])) if claims["kind"] == "end_user" else nullcontext()


def aged(token: str, minutes: int, *, amr: tuple[str, ...] = ("pwd",)) -> str:
    """A token of the same session whose last proof was that long ago."""
    claims = _claims_of(token)
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
