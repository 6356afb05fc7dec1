"""The statements of authorization requests, codes and consents that every sign-in of an application executes.

Call everything here inside the tenant.
"""

from collections.abc import Collection
from typing import Final
from uuid import UUID

import orjson

from identity_platform.crypto import hash_token, new_token
from identity_platform.postgresql.model_columns import ModelColumns
from identity_platform.postgresql.statements import execute, fetch_row
from identity_platform.postgresql.values import SqlValue
from openid.authorization.parameters import Parameters
from openid.clients import CLIENT
from openid.models import AuthorizationCode, AuthorizationRequest
from tenants.entering.target import TENANT_ALIAS
from userflow.accounts.models import TenantClient
from userflow.accounts.session_models import EndUserSession
from userflow.sessions.queries import SESSION, USER, session_with_user

CODE_SECONDS: Final = 60
# Of two tabs that finish one request, the second waits for the first and finds it gone.
_STORE_CODE = """
WITH finished AS (
  DELETE FROM openid_authorizationrequest WHERE digest = %(request_digest)s::bytea RETURNING 1
)
INSERT INTO openid_authorizationcode (digest, client_id, session_id, user_id, redirect_uri, code_challenge, dpop_jkt, scopes,
  audiences, id_token_claims, userinfo_claims, nonce, created_at, expires_at)
SELECT %(digest)s, %(client_id)s, %(session_id)s, %(user_id)s, %(redirect_uri)s, %(code_challenge)s, %(dpop_jkt)s,
  %(scopes)s, %(audiences)s, %(id_token_claims)s, %(userinfo_claims)s, %(nonce)s, now(),
  now() + make_interval(secs => %(seconds)s)
FROM userflow_endusersession n
WHERE n.id = %(session_id)s AND n.ended_at IS NULL
  AND (%(request_digest)s::bytea IS NULL OR EXISTS (SELECT FROM finished))
FOR KEY SHARE OF n
"""
_REQUEST = ModelColumns(AuthorizationRequest)
_FIND_REQUEST = f"""
SELECT {_REQUEST.of("a")}, {CLIENT.of("c")}
FROM openid_authorizationrequest a JOIN userflow_tenantclient c ON c.id = a.client_id AND c.active
WHERE a.digest = %s AND NOT a.pushed AND a.browser_digest = %s AND a.expires_at > now()
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
WHERE user_id = %s AND client_id = %s AND scopes @> %s::jsonb AND audiences @> %s::jsonb AND claims @> %s::jsonb
"""
# A consent that changes at the same moment is compared again once its row is locked.
_LOCK_CONSENT = f"{_CONSENT} FOR NO KEY UPDATE"
# How many expired requests go with each new one: more than one, so that the table shrinks after a burst.
PURGED_AT_ONCE: Final = 10
_STORE_REQUEST = """
WITH expired AS (
  DELETE FROM openid_authorizationrequest WHERE digest IN (
    SELECT digest FROM openid_authorizationrequest WHERE expires_at < now()
    ORDER BY expires_at LIMIT %(purged)s FOR UPDATE SKIP LOCKED)
), opened AS (
  SELECT 1 FROM openid_authorizationrequest WHERE digest = %(pushed_digest)s::bytea AND pushed FOR SHARE
)
INSERT INTO openid_authorizationrequest
  (digest, client_id, parameters, pushed, pushed_digest, browser_digest, created_at, expires_at)
SELECT
  %(digest)s, %(client_id)s, %(parameters)s::jsonb, %(pushed)s, %(pushed_digest)s, %(browser_digest)s, now(), %(expires_at)s
WHERE %(pushed_digest)s::bytea IS NULL OR EXISTS (SELECT FROM opened)
"""


def store_request(values: dict[str, SqlValue]) -> bool:
    """Store an authorization request by its columns; return False if the pushed request that it comes from is gone.

    One statement: anyone can store requests, so the expired ones must not wait for the daily purge.
    """
    return bool(execute(TENANT_ALIAS, _STORE_REQUEST, {**values, "purged": PURGED_AT_ONCE}))


def find_request(digest: bytes, browser_digest: bytes) -> tuple[AuthorizationRequest, TenantClient] | None:
    """Return a request that this browser has brought, with its client; None if it is gone or its client is not active."""
    row = fetch_row(TENANT_ALIAS, _FIND_REQUEST, [digest, browser_digest])
    if row is None:
        return None
    return _REQUEST.row(TENANT_ALIAS, row[: len(_REQUEST)]), CLIENT.row(TENANT_ALIAS, row[len(_REQUEST) :])


def new_code(
    session: EndUserSession, *, client_id: UUID, parameters: Parameters, request_digest: bytes | None = None
) -> str | None:
    """Store a code for the user of this browser session and return it: 256 bits, used once within a minute.

    With `request_digest` that request ends with it. Returns None if it was finished, or the session has ended, meanwhile.
    RFC 6749 section 4.1.2, RFC 9700 section 2.1.1.
    """
    code = new_token()
    values: dict[str, SqlValue] = {
        "digest": hash_token(code),
        "client_id": client_id,
        "session_id": session.pk,
        "user_id": session.user_id,
        "redirect_uri": parameters.redirect_uri,
        "code_challenge": parameters.code_challenge,
        "dpop_jkt": parameters.dpop_jkt,
        "scopes": _as_json(parameters.scopes),
        "audiences": _as_json(parameters.audiences),
        "id_token_claims": _as_json(parameters.id_token_claims),
        "userinfo_claims": _as_json(parameters.userinfo_claims),
        "nonce": parameters.nonce,
        "seconds": CODE_SECONDS,
        "request_digest": request_digest,
    }
    return code if execute(TENANT_ALIAS, _STORE_CODE, values) else None


def use_code(digest: bytes, client_id: UUID, *, opened_id: UUID) -> AuthorizationCode | None:
    """Use the code of this client up and return it with its session and user; None if it is used, expired or unknown.

    `opened_id` is the id of the session that the transaction opens with the code.
    """
    values: dict[str, SqlValue] = {"digest": digest, "client_id": client_id, "opened_id": opened_id}
    row = fetch_row(TENANT_ALIAS, _USE_CODE, values)
    if row is None:
        return None
    code = _CODE.row(TENANT_ALIAS, row[: len(_CODE)])
    code.session = session_with_user(row[len(_CODE) :])
    return code


def covers(
    *,
    user_id: UUID,
    client_id: UUID,
    scopes: Collection[str],
    audiences: Collection[str],
    claims: Collection[str] = (),
    lock: bool = False,
) -> bool:
    """Return whether the user has consented to all of these scopes, audiences and mapped claims for the client.

    With `lock` the consent cannot be withdrawn before the end of the transaction.
    """
    values: list[SqlValue] = [user_id, client_id, _as_json(scopes), _as_json(audiences), _as_json(claims)]
    return fetch_row(TENANT_ALIAS, _LOCK_CONSENT if lock else _CONSENT, values) is not None


def _as_json(names: Collection[str]) -> str:
    return orjson.dumps(list(names)).decode()
