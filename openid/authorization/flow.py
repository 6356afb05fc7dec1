"""The steps between an authorization request and its response. Call everything here inside the tenant.

Which step is next follows from the request and the browser's session alone, so that a page can be reloaded, skipped or opened
twice without leaving the order: the code is issued only when no step is left.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial

from django.db.models import Q
from django.utils.timezone import now

from openid.authorization.consents import grant_consent
from openid.authorization.parameters import CONSENT, CREATE, LOGIN, NONE, SELECT_ACCOUNT
from openid.authorization.queries import covers, new_code
from openid.authorization.requests import PendingRequest
from openid.authorization.responses import AuthorizationResponse
from openid.device.codes import approve, reject
from openid.errors import CONSENT_REQUIRED, LOGIN_REQUIRED, RequestExpired, StepRequired
from openid.models import AuthorizationRequest
from tenants.entering.context import tenant_atomic
from userflow.accounts.session_models import EndUserSession


class Step(StrEnum):
    """What the user has to do next."""

    SIGN_IN = "sign_in"
    STEP_UP = "step_up"
    SELECT_ACCOUNT = "select_account"
    CONSENT = "consent"
    DONE = "done"


# The errors of `prompt=none` (OpenID Connect Core section 3.1.2.6).
_ERRORS = {
    Step.SIGN_IN: (LOGIN_REQUIRED, "The user has to sign in."),
    Step.STEP_UP: (LOGIN_REQUIRED, "The user has to prove a second factor."),
    Step.SELECT_ACCOUNT: ("account_selection_required", "The user has to select an account."),
    Step.CONSENT: (CONSENT_REQUIRED, "The user has to consent."),
}


def next_step(pending: PendingRequest, session: EndUserSession | None) -> Step:
    """Return what the user has to do next. `session` is the browser's active session, if there is one."""
    if session is None or _must_sign_in_again(pending, session):
        return Step.SIGN_IN
    if session.acr < pending.parameters.acr:
        return Step.STEP_UP
    if _must_select_account(pending, session):
        return Step.SELECT_ACCOUNT
    return Step.CONSENT if _needs_consent(pending, session) else Step.DONE


def _must_sign_in_again(pending: PendingRequest, session: EndUserSession) -> bool:
    parameters = pending.parameters
    if parameters.subject and parameters.subject != str(session.user_id):
        return True
    # No state is kept about it: a verification since the request began is what it asks for.
    if {LOGIN, CREATE}.intersection(parameters.prompts) and session.auth_time < pending.created_at:
        return True
    if parameters.max_age is None:
        return False
    return session.auth_time < pending.created_at - timedelta(seconds=parameters.max_age)


def _must_select_account(pending: PendingRequest, session: EndUserSession) -> bool:
    # Signing in is selecting an account.
    if SELECT_ACCOUNT not in pending.parameters.prompts or session.created_at >= pending.created_at:
        return False
    return not _since(session, pending.account_chosen_at)


def _needs_consent(pending: PendingRequest, session: EndUserSession) -> bool:
    is_consent_requested = CONSENT in pending.parameters.prompts
    if is_consent_requested and not _since(session, pending.consented_at):
        return True
    if pending.client.first_party:
        return False
    asked_for = pending.parameters
    return not covers(
        user_id=session.user_id,
        client_id=pending.client.pk,
        scopes=asked_for.consent_scopes,
        audiences=asked_for.audiences,
        claims=asked_for.mapped_claims,
    )


def _since(session: EndUserSession, moment: datetime | None) -> bool:
    """Return whether the user of this session has done it, and not that of a session before it in this browser."""
    return moment is not None and moment >= session.created_at


def choose_account(pending: PendingRequest, session: EndUserSession) -> PendingRequest:
    """Store that the user goes on with the account of this session; return the request as it is then.

    Raises RequestExpired.
    """
    moment = now()
    _update(pending, account_chosen_at=moment)
    return replace(pending, account_chosen_at=moment)


def record_consent(pending: PendingRequest, session: EndUserSession) -> PendingRequest:
    """Store that the user lets the application have what the request asks for; return the request as it is then.

    Raises RequestExpired.
    """
    moment = now()
    with tenant_atomic():
        _update(pending, consented_at=moment)
        grant_consent(
            user_id=session.user_id,
            client_id=pending.client.pk,
            scopes=pending.parameters.consent_scopes,
            audiences=pending.parameters.audiences,
            claims=pending.parameters.mapped_claims,
        )
    return replace(pending, consented_at=moment)


def _update(pending: PendingRequest, **fields: datetime) -> None:
    if not AuthorizationRequest.objects.filter(digest=pending.digest).update(**fields):
        raise RequestExpired


def complete(pending: PendingRequest, session: EndUserSession | None) -> AuthorizationResponse:
    """Finish a request and return the response with the code, `state` and `iss`; approve that of a device.

    Every step is checked again here. Raises StepRequired, and RequestExpired if the request was finished meanwhile.
    """
    step = next_step(pending, session)
    if session is None or step is not Step.DONE:
        raise StepRequired(step)
    if pending.parameters.device:
        with tenant_atomic():
            _finish(pending)
            approve(pending.parameters, session)
        return pending.device_page(approved=True)
    issue_code = partial(new_code, session, client_id=pending.client.pk, parameters=pending.parameters)
    if pending.pushed_digest is None:
        # One statement needs no transaction.
        code = issue_code(request_digest=pending.digest)
    else:
        with tenant_atomic():
            _finish(pending)
            code = issue_code()
    if code is None:
        raise RequestExpired
    return pending.response(code=code)


def deny(pending: PendingRequest, error: str, description: str) -> AuthorizationResponse:
    """Finish a request with an error and return the response with it. Raises RequestExpired."""
    if pending.parameters.device:
        with tenant_atomic():
            _finish(pending)
            reject(pending.parameters.device)
        return pending.device_page(approved=False)
    _finish(pending)
    return pending.response(error=error, error_description=description)


def _finish(pending: PendingRequest) -> None:
    """Delete the request, and with a pushed one all that browsers have begun with it. Of two tabs only one finishes it.

    Raises RequestExpired.
    """
    digests = [digest for digest in (pending.digest, pending.pushed_digest) if digest is not None]
    if not digests:
        return
    if pending.pushed_digest is None:
        if not AuthorizationRequest.objects.filter(digest=digests[0]).delete()[0]:
            raise RequestExpired
        return
    condition = Q(digest__in=digests) | Q(pushed_digest=pending.pushed_digest)
    # Locked in one order: of two that finish at once, the second finds its request gone.
    requests = AuthorizationRequest.objects.filter(condition)
    ended = requests.select_for_update().order_by("digest").values_list("digest", flat=True)
    with tenant_atomic():
        if digests[0] not in {bytes(digest) for digest in ended}:
            raise RequestExpired
        requests.delete()


def answer_without_pages(pending: PendingRequest, session: EndUserSession | None) -> AuthorizationResponse | None:
    """Return the response to a request that needs no page, or None if the user has to do something first.

    With `prompt=none` there is always one (OpenID Connect Core section 3.1.2.1).
    """
    try:
        return complete(pending, session)
    except StepRequired as needed:
        if NONE not in pending.parameters.prompts:
            return None
        error, description = _ERRORS[Step(needed.step)]
        return deny(pending, error, description)
