"""Authorization codes: 256 bits, stored hashed, used once within a minute (RFC 6749 section 4.1.2, RFC 9700 section 2.1.1).

Call everything here inside the tenant.
"""

from typing import Final
from uuid import UUID

from identity_platform.crypto import hash_token, new_token
from openid.authorization.parameters import Parameters
from openid.authorization.queries import store_code
from openid.models import AuthorizationCode
from userflow.accounts.session_models import EndUserSession

CODE_SECONDS: Final = 60


def new_code(session: EndUserSession, *, client_id: UUID, parameters: Parameters) -> str:
    """Store a code for the user of this browser session and return it."""
    code = new_token()
    store_code(hash_token(code), session, client_id=client_id, parameters=parameters, seconds=CODE_SECONDS)
    return code


def delete_codes_of_client(sender: object, *, client_id: UUID, **_: object) -> None:
    """Delete the unused codes of a client that is deactivated: none is valid after it is activated again."""
    AuthorizationCode.objects.filter(client_id=client_id, used_at=None).delete()
