"""The grant types of clients (RFC 7591 section 2)."""

from collections.abc import Collection, Sequence

from userflow.accounts.models import CONFIDENTIAL

AUTHORIZATION_CODE = "authorization_code"
REFRESH_TOKEN = "refresh_token"
CLIENT_CREDENTIALS = "client_credentials"
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
GRANT_TYPES = (AUTHORIZATION_CODE, REFRESH_TOKEN, CLIENT_CREDENTIALS, DEVICE_CODE)


def grant_types_in_force(stored: Sequence[str], *, type_: str, scopes: Collection[str]) -> tuple[str, ...]:
    """Return the grant types that a client may use: those stored or, if there are none, the default of its type.

    The default is what clients could do before they had this field: sign users in and, with a secret and scopes, act for
    themselves.
    """
    if stored:
        return tuple(stored)
    own = (CLIENT_CREDENTIALS,) if type_ == CONFIDENTIAL and scopes else ()
    return (AUTHORIZATION_CODE, REFRESH_TOKEN, *own)
