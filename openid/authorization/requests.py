"""Authorization requests: validated, pushed (RFC 9126), and kept while the user signs in and consents.

A request is stored under the digest of its handle and belongs to one browser: the handle alone, in an address that an attacker
sends to a victim, continues nothing in another browser.
"""

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import orjson
from django.utils.timezone import now

from identity_platform.crypto import hash_token, new_token
from identity_platform.postgresql.values import SqlValue
from openid.authorization.parameters import Parameters, Sent, is_plain, read_parameters, requested_response_mode
from openid.authorization.queries import find_request, store_request
from openid.authorization.responses import QUERY, SIGNED, SIGNED_MODES, AuthorizationResponse
from openid.clients import find_client
from openid.errors import RequestExpired, RequestRejected
from openid.models import AuthorizationRequest
from openid.server import check_authorization_request
from tenants.addresses.issuers import issuer_of
from tenants.entering.context import current_tenant, in_tenant
from tenants.entering.lookup import TenantContext
from userflow.accounts.grant_types import DEVICE_CODE, may_use
from userflow.accounts.models import TenantClient
from userflow.accounts.security_profiles import profile_of
from userflow.clients.redirects import matches
from userflow.oauth_errors import DpopProofInvalid
from userflow.sessions.client_signatures import SignatureInvalid, Unsigned
from userflow.sessions.cookies import cookie_digest
from userflow.sessions.id_tokens import signed_response
from userflow.sessions.request_objects import read_request_object

UNKNOWN_CLIENT: Final = "client_id must be that of an active client of this tenant."
REQUEST_URI_PREFIX: Final = "urn:ietf:params:oauth:request_uri:"
PUSHED_SECONDS: Final = 90
# What the page says at the end of a device's request.
DEVICE_DECIDED: Final = ("approved", "denied")
# Registration, a mailed code and a password reset fit into it.
REQUEST_LASTS: Final = timedelta(hours=1)

UNKNOWN_REQUEST_URI: Final = "request_uri is unknown, expired, used, or of another client."


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A validated request that is not finished."""

    tenant: TenantContext
    client: TenantClient
    parameters: Parameters
    created_at: datetime
    # None: not stored, because the browser that brings it can be answered at once.
    digest: bytes | None = None
    # The pushed request that it comes from. It can be opened again until it is finished or has expired.
    pushed_digest: bytes | None = None
    account_chosen_at: datetime | None = None
    consented_at: datetime | None = None

    def device_page(self, *, approved: bool) -> AuthorizationResponse:
        """Return the page at the end of a device's request."""
        decided = DEVICE_DECIDED[0] if approved else DEVICE_DECIDED[1]
        return AuthorizationResponse(f"{self.tenant.root_path}/device?decided={decided}")

    def response(self, **parameters: str) -> AuthorizationResponse:
        """Return the response to the application: these parameters, `state` and `iss`."""
        request_parameters = self.parameters
        return response_to(
            self.tenant,
            self.client,
            request_parameters.redirect_uri,
            state=request_parameters.state,
            response_mode=request_parameters.response_mode,
            **parameters,
        )


def response_to(
    tenant: TenantContext,
    client: TenantClient,
    redirect_uri: str,
    *,
    state: str | None,
    response_mode: str,
    **parameters: str,
) -> AuthorizationResponse:
    """Return the response with these parameters, `state` and `iss` (RFC 6749 section 4.1.2, RFC 9207), signed if it is to be.

    A signed one raises UnknownTenant, TenantSuspended, TenantBusy, DataKeyLocked, SigningKeyNotPublished.
    """
    fields = {**parameters, **({} if state is None else {"state": state}), "iss": issuer_of(tenant)}
    if response_mode in SIGNED_MODES:
        algorithm = client.id_token_signed_response_alg
        fields = {"response": signed_response(fields, tenant=tenant, client_id=client.pk, algorithm=algorithm)}
    return AuthorizationResponse(redirect_uri, fields, SIGNED_MODES.get(response_mode, response_mode))


def read_request(tenant: TenantContext, sent: Sent, *, client: TenantClient | None = None) -> PendingRequest:
    """Return the request that a browser brings to the authorization endpoint, validated or as it was pushed.

    `client` is the active client of the tenant that the request names, if it has been read.
    Raises RequestRejected: without `redirect_uri` for an error that the application must not get.
    """
    client = client or find_client(tenant, sent.get("client_id"))
    if client is None:
        raise RequestRejected("invalid_request", UNKNOWN_CLIENT)
    request_uri = sent.get("request_uri")
    if request_uri is not None and request_uri.startswith(REQUEST_URI_PREFIX):
        return _pushed(tenant, client, request_uri.removeprefix(REQUEST_URI_PREFIX))
    sent = parameters_of(tenant, client, sent)
    pending = validated(tenant, client, sent)
    if client.require_par:
        problem = "This client has to push its authorization requests (RFC 9126)."
        raise returned(RequestRejected("invalid_request", problem), pending.parameters.redirect_uri, sent, client)
    return pending


def parameters_of(tenant: TenantContext, client: TenantClient, sent: Sent) -> Sent:
    """Return the parameters of the signed request object where one was sent, and no others (RFC 9101 section 5).

    Raises ClientKeysBusy, and RequestRejected (`invalid_request_object`, or `request_not_supported` for one that is not signed,
    OpenID Connect Core section 6.1, where the client has no profile; `invalid_request` without one if its profile demands it):
    without a redirect URI unless a registered one stands beside the object.
    """
    encoded = sent.get("request")
    try:
        if encoded is not None:
            return Sent(read_request_object(encoded, client=client, tenant=tenant))
        if not profile_of(client.security_profile).signed_messages_only:
            return sent
        rejected = RequestRejected("invalid_request", "This client has to sign its authorization requests (RFC 9101).")
    except SignatureInvalid as problem:
        # FAPI 2.0 Message Signing knows no unsigned object.
        is_unsupported = isinstance(problem, Unsigned) and not client.security_profile
        error = "request_not_supported" if is_unsupported else "invalid_request_object"
        rejected = RequestRejected(error, f"The request object is rejected: {problem}.")
    redirect_uri = sent.get("redirect_uri")
    if redirect_uri is None or not matches(client.redirect_uris, redirect_uri):
        raise rejected
    raise returned(rejected, redirect_uri, sent, client)


def validated(tenant: TenantContext, client: TenantClient, sent: Sent) -> PendingRequest:
    """Return a request with valid parameters. Raises RequestRejected."""
    redirect_uri = sent.get("redirect_uri")
    if redirect_uri is None or not matches(client.redirect_uris, redirect_uri):
        raise RequestRejected("invalid_request", "redirect_uri must be one of those that the client has registered.")
    try:
        return PendingRequest(tenant, client, _read(tenant, client, sent, redirect_uri), created_at=now())
    except RequestRejected as problem:
        raise returned(problem, redirect_uri, sent, client) from None


def _read(tenant: TenantContext, client: TenantClient, sent: Sent, redirect_uri: str) -> Parameters:
    if sent.repeated():
        raise RequestRejected("invalid_request", "A parameter appears more than once.")
    if sent.get("request_uri") is not None:
        raise RequestRejected("request_uri_not_supported", "Push the request, or send it in the parameter request.")
    response_type = sent.get("response_type")
    if response_type is None or not is_plain(response_type):
        raise RequestRejected("invalid_request", "response_type must be code.")
    names = ("response_type", "redirect_uri", "code_challenge", "code_challenge_method")
    checked = {name: value for name in names if (value := sent.get(name)) is not None}
    check_authorization_request(client, {**checked, "client_id": str(client.pk)})
    return read_parameters(sent, tenant=tenant, client=client, redirect_uri=redirect_uri)


def returned(problem: RequestRejected, redirect_uri: str, sent: Sent, client: TenantClient) -> RequestRejected:
    """Return the error for the application: at its redirect URI, with `state`, in the response mode that it asks for.

    Without a mode that it may ask for: signed if its security profile demands that, else in the query.
    """
    profile = profile_of(client.security_profile)
    try:
        response_mode = requested_response_mode(sent, redirect_uri, profile)
    except RequestRejected:
        response_mode = SIGNED if profile.signed_messages_only else QUERY
    return RequestRejected(
        problem.error,
        problem.description,
        redirect_uri=redirect_uri,
        state=sent.get("state"),
        response_mode=response_mode,
    )


def push_request(*, tenant: TenantContext, client_id: UUID, sent: Sent, dpop_jkt: str = "") -> str:
    """Store a request that an authenticated client sends and return its `request_uri`: 90 seconds, finished once (RFC 9126).

    The code is bound to the key of `dpop_jkt`, the thumbprint of a proof that came with the request (RFC 9449 section 10.1).
    Raises RequestRejected, ClientKeysBusy, DpopProofInvalid (the parameter `dpop_jkt` names another key), UnknownTenant,
    TenantSuspended, TenantBusy.
    """
    if sent.get("request_uri") is not None:
        raise RequestRejected("invalid_request", "A pushed request cannot refer to another one.")
    client = find_client(tenant, client_id)
    if client is None:
        raise RequestRejected("invalid_request", UNKNOWN_CLIENT)
    pending = validated(tenant, client, parameters_of(tenant, client, sent))
    if dpop_jkt:
        if pending.parameters.dpop_jkt not in ("", dpop_jkt):
            raise DpopProofInvalid("The proof is by another key than the parameter dpop_jkt names.")
        pending = replace(pending, parameters=replace(pending.parameters, dpop_jkt=dpop_jkt))
    return keep_pushed(pending)


def keep_pushed(pending: PendingRequest) -> str:
    """Store a request that has not begun in a browser and return its `request_uri`, as if its client had pushed it.

    Raises UnknownTenant, TenantSuspended, TenantBusy.
    """
    handle = new_token()
    _store(pending, handle, lasts=timedelta(seconds=PUSHED_SECONDS), pushed=True)
    return REQUEST_URI_PREFIX + handle


def begin_request(pending: PendingRequest, browser: str) -> str:
    """Store a request until the user of this browser has finished it; return its handle, for the address of a page.

    `browser` is the value of the cookie that names the browser. Raises RequestRejected, UnknownTenant, TenantSuspended,
    TenantBusy.
    """
    handle = new_token()
    _store(pending, handle, lasts=REQUEST_LASTS, browser=browser)
    return handle


def _store(
    pending: PendingRequest, handle: str, *, lasts: timedelta, pushed: bool = False, browser: str | None = None
) -> None:
    values: dict[str, SqlValue] = {
        "digest": hash_token(handle),
        "client_id": pending.client.pk,
        "parameters": orjson.dumps(asdict(pending.parameters)).decode(),
        "pushed": pushed,
        "pushed_digest": pending.pushed_digest,
        "browser_digest": cookie_digest(browser) if browser is not None else None,
        "expires_at": now() + lasts,
    }
    with in_tenant(pending.tenant.tenant_id):
        if not store_request(values):
            # Another browser has finished the pushed request meanwhile.
            raise RequestRejected("invalid_request_uri", UNKNOWN_REQUEST_URI)


def _pushed(tenant: TenantContext, client: TenantClient, handle: str) -> PendingRequest:
    """Return a pushed request of this client, which stays until it is finished: a browser may reload it (RFC 9126 section 4).

    Raises RequestRejected.
    """
    digest = hash_token(handle)
    with in_tenant(tenant.tenant_id):
        requests = AuthorizationRequest.objects.filter(
            digest=digest, client_id=client.pk, pushed=True, expires_at__gt=now()
        )
        stored = requests.values_list("parameters", flat=True).first()
    parameters = Parameters.from_json(stored) if stored is not None else None
    if parameters is None or not matches(client.redirect_uris, parameters.redirect_uri):
        raise RequestRejected("invalid_request_uri", UNKNOWN_REQUEST_URI)
    return PendingRequest(tenant, client, parameters, created_at=now(), pushed_digest=digest)


def pending_request(handle: str, browser: str) -> PendingRequest:
    """Return the request of this handle, if this browser has brought it. Call it inside the tenant. Raises RequestExpired."""
    request_with_client = find_request(hash_token(handle), cookie_digest(browser))
    if request_with_client is None:
        raise RequestExpired
    row, client = request_with_client
    parameters = Parameters.from_json(row.parameters)
    # The client may have changed since the request began.
    if parameters.device:
        may = may_use(client, DEVICE_CODE)
    else:
        was_pushed = row.pushed_digest is not None
        may = matches(client.redirect_uris, parameters.redirect_uri) and (was_pushed or not client.require_par)
    if not may:
        raise RequestExpired
    return PendingRequest(
        current_tenant(),
        client,
        parameters,
        created_at=row.created_at,
        digest=bytes(row.digest),
        pushed_digest=bytes(row.pushed_digest) if row.pushed_digest is not None else None,
        account_chosen_at=row.account_chosen_at,
        consented_at=row.consented_at,
    )
