"""Revoke access tokens of clients before they expire; `verify` checks this on every request."""

from uuid import UUID

from django.db import transaction
from django.db.models import F

from identity_platform.audit.writer import record_for_platform
from userflow.accounts.models import Client
from userflow.accounts.principals import Claims, Principal, moment
from userflow.sessions.models import RevokedToken


def revoke_client_token(claims: Claims) -> None:
    """Reject the client's access token with these claims from the next request on."""
    expires_at = moment(claims["exp"])
    assert expires_at is not None  # a verified token always has one
    with transaction.atomic():
        RevokedToken.objects.bulk_create(
            [RevokedToken(jti=claims["jti"], expires_at=expires_at)], ignore_conflicts=True
        )
        record_for_platform(
            "client_token.revoked", tenant_id=UUID(claims["tenant_id"]), target=("client", claims["sub"])
        )


def end_client_tokens(*, principal: Principal, everywhere: bool) -> None:
    """End the token of the call, or with `everywhere` all of the client's own tokens."""
    if not everywhere:
        revoke_client_token(principal.claims)
        return
    with transaction.atomic():
        Client.objects.filter(pk=principal.id).update(generation=F("generation") + 1)
        record_for_platform("client.tokens_ended", tenant_id=principal.tenant_id, target=("client", principal.id))
