"""Access tokens of clients that are refused before their time; `state` asks for them at every request."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import transaction

from identity_platform.audit.writer import record_for_platform
from userflow.principals import moment
from userflow.tokens.models import RevokedToken


def revoke_client_token(claims: Mapping[str, Any]) -> None:
    """Refuse the client's access token with these claims from the next request on."""
    expires_at = moment(claims["exp"])
    assert expires_at is not None  # a verified token always has one
    with transaction.atomic():
        RevokedToken.objects.bulk_create(
            [RevokedToken(jti=claims["jti"], expires_at=expires_at)], ignore_conflicts=True
        )
        record_for_platform(
            "client_token.revoked", tenant_id=UUID(claims["tenant_id"]), target=("client", claims["sub"])
        )
