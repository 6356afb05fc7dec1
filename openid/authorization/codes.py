"""Authorization codes: 256 bits, stored hashed, used once within a minute (RFC 6749 section 4.1.2, RFC 9700 section 2.1.1).

Call everything here inside the tenant.
"""

from datetime import timedelta
from typing import Final
from uuid import UUID

from django.utils.timezone import now

from identity_platform.crypto import hash_token, new_token
from openid.authorization.parameters import Parameters
from openid.authorization.queries import store_code
from openid.models import AuthorizationCode
from userflow.accounts.session_models import EndUserSession

CODE_SECONDS: Final = 60


def new_code(session: EndUserSession, *, client_id: UUID, parameters: Parameters) -> str:
    """Store a code for the user of this browser session and return it."""
    code, moment = new_token(), now()
    row = AuthorizationCode(
        digest=hash_token(code),
        client_id=client_id,
        session_id=session.pk,
        user_id=session.user_id,
        redirect_uri=parameters.redirect_uri,
        code_challenge=parameters.code_challenge,
        dpop_jkt=parameters.dpop_jkt,
        scopes=list(parameters.scopes),
        audiences=list(parameters.audiences),
        id_token_claims=list(parameters.id_token_claims),
        userinfo_claims=list(parameters.userinfo_claims),
        nonce=parameters.nonce,
        expires_at=moment + timedelta(seconds=CODE_SECONDS),
    )
    store_code(row)
    return code


def delete_codes_of_client(sender: object, *, client_id: UUID, **_: object) -> None:
    """Delete the unused codes of a client that is deactivated: none is valid after it is activated again."""
    AuthorizationCode.objects.filter(client_id=client_id, used_at=None).delete()
