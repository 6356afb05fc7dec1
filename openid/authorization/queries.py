"""The statements of authorization codes and of consents that every sign-in of an application executes.

Call everything here inside the tenant.
"""

from collections.abc import Collection
from uuid import UUID

import orjson
from django.db import connections

from identity_platform.postgresql.model_columns import ModelColumns
from identity_platform.postgresql.values import SqlValue
from openid.models import AuthorizationCode
from tenants.target import TENANT_ALIAS
from userflow.sessions.queries import SESSION, USER, column_values, session_with_user

_STORE_CODE = """
INSERT INTO openid_authorizationcode (digest, client_id, session_id, user_id, redirect_uri, code_challenge, dpop_jkt, scopes,
  audiences, id_token_claims, userinfo_claims, nonce, created_at, expires_at)
VALUES (%(code_digest)s, %(code_client_id)s, %(code_session_id)s, %(code_user_id)s, %(code_redirect_uri)s,
  %(code_code_challenge)s, %(code_dpop_jkt)s, %(code_scopes)s, %(code_audiences)s, %(code_id_token_claims)s,
  %(code_userinfo_claims)s, %(code_nonce)s, %(code_created_at)s, %(code_expires_at)s)
"""
_CODE = ModelColumns(AuthorizationCode)
# Of two requests with one code, one changes the row; the other one waits for it and then finds the code used. The id of the
# session that will be opened is stored at once: its foreign key is checked at the end of the transaction.
_USE_CODE = f"""
WITH used AS (
  UPDATE openid_authorizationcode SET used_at = now(), opened_id = %(opened_id)s
  WHERE digest = %(digest)s AND client_id = %(client_id)s AND used_at IS NULL AND expires_at > now() RETURNING *
)
SELECT {_CODE.of("used")}, {SESSION.of("n")}, {USER.of("u")}
FROM used JOIN userflow_endusersession n ON n.id = used.session_id JOIN userflow_enduser u ON u.id = n.user_id
"""
_CONSENT = """
SELECT 1 FROM openid_consent
WHERE user_id = %s AND client_id = %s AND scopes @> %s::jsonb AND audiences @> %s::jsonb
"""
# A consent that changes at the same moment is compared again once its row is locked.
_LOCK_CONSENT = f"{_CONSENT} FOR NO KEY UPDATE"


def store_code(code: AuthorizationCode) -> None:
    """Store a new code."""
    with connections[TENANT_ALIAS].cursor() as cursor:
        cursor.execute(_STORE_CODE, column_values(code, "code"))


def use_code(digest: bytes, client_id: UUID, *, opened_id: UUID) -> AuthorizationCode | None:
    """Use the code of this client up and return it with its session and user; None if it is used, expired or unknown.

    `opened_id` is the id of the session that the transaction opens with the code.
    """
    values: dict[str, SqlValue] = {"digest": digest, "client_id": client_id, "opened_id": opened_id}
    with connections[TENANT_ALIAS].cursor() as cursor:
        cursor.execute(_USE_CODE, values)
        row = cursor.fetchone()
    if row is None:
        return None
    code = _CODE.row(TENANT_ALIAS, row[: len(_CODE)])
    code.session = session_with_user(row[len(_CODE) :])
    return code


def covers(
    *, user_id: UUID, client_id: UUID, scopes: Collection[str], audiences: Collection[str], lock: bool = False
) -> bool:
    """Return whether the user has consented to all of these scopes and audiences for the client.

    With `lock` the consent cannot be withdrawn before the end of the transaction.
    """
    stated = (orjson.dumps(sorted(names)).decode() for names in (scopes, audiences))
    values: list[SqlValue] = [user_id, client_id, *stated]
    with connections[TENANT_ALIAS].cursor() as cursor:
        cursor.execute(_LOCK_CONSENT if lock else _CONSENT, values)
        return cursor.fetchone() is not None
