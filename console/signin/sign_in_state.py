"""The steps of a sign-in: after the password, before the enrollment of a first factor, or signed in.

The state is in the console's session on the server. The browser holds a random session key, which changes with every
step, so session fixation gains nothing.
"""

import time
from dataclasses import asdict, dataclass
from typing import Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponseRedirect
from django.middleware.csrf import rotate_token
from django.urls import reverse

from console.frame import access
from console.frame.access import KIND, SEEN, SESSION, TENANT, USER, Context
from console.frame.scope import console_path
from console.signin.otp_middleware import DEVICE_ID_SESSION_KEY, mark_verified
from userflow.accounts import principals
from userflow.accounts.models import Account, AdminUser
from userflow.accounts.session_policy import AAL2, SECOND_FACTORS, acr_of
from userflow.signin.pipeline import SignedIn, Waiting
from userflow.signin.step_up import PROOF_TOKEN_SECONDS, StepUp, proof_token_for

PENDING: Final = "console_pending"
ENROLLING: Final = "console_enrolling"
PROOF: Final = "console_proof"
PROOF_ENDS: Final = "console_proof_ends"


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """The password was correct and a second factor is pending. `ticket` is the API's: ten minutes, five attempts."""

    ticket: str
    email: str
    methods: list[str]
    next: str


@dataclass(frozen=True, slots=True)
class Enrolling:
    """The password was correct, and the policy requires a factor that the user does not have yet.

    `ticket` enrolls it, and `mfa_token` then completes the sign-in.
    """

    ticket: str
    mfa_token: str
    email: str
    next: str


def local_path(request: HttpRequest, next_path: str | None) -> str:
    """Return the next page: a path of the console on this host, else the dashboard."""
    return console_path(request, next_path) or reverse("admin:index")


def after_password(
    request: HttpRequest, result: SignedIn[AdminUser] | Waiting[AdminUser], *, next_path: str
) -> HttpResponseRedirect:
    """Return the next step of a sign-in whose password was correct."""
    if isinstance(result, SignedIn):
        return enter(request, result, next_path=next_path)
    request.session.flush()
    email, ticket = result.user.email, result.enrollment_ticket
    if ticket is None:
        request.session[PENDING] = asdict(PendingSignIn(result.mfa_token, email, list(result.methods), next_path))
        return HttpResponseRedirect(reverse("admin:second_step"))
    request.session[ENROLLING] = asdict(Enrolling(ticket, result.mfa_token, email, next_path))
    return HttpResponseRedirect(reverse("admin:my_sign_in"))


def pending(request: HttpRequest) -> PendingSignIn | None:
    """Return the sign-in of this browser that waits for its second factor."""
    stored_state = request.session.get(PENDING)
    return PendingSignIn(**stored_state) if stored_state else None


def enrolling(request: HttpRequest) -> Enrolling | None:
    """Return the sign-in of this browser that waits for the enrollment of a first factor."""
    stored_state = request.session.get(ENROLLING)
    return Enrolling(**stored_state) if stored_state else None


def enter(request: HttpRequest, signed_in: SignedIn[Account], *, next_path: str) -> HttpResponseRedirect:
    """Start the console session of a complete sign-in and redirect to the requested page."""
    person, amr = signed_in.user, signed_in.amr
    assert isinstance(person, AdminUser)  # only admin users sign in to the console
    user = AdminUser.from_db("default", ["id", "tenant_id"], [person.pk, person.tenant_id])
    request.session.flush()
    facts: Context = {
        KIND: principals.ADMIN if user.tenant_id else principals.OPERATOR,
        USER: str(user.pk),
        TENANT: str(user.tenant_id) if user.tenant_id else None,
        SESSION: str(signed_in.session.pk),
        SEEN: time.time(),
    }
    for name, value in facts.items():
        request.session[name] = value
    rotate_token(request)
    request.user = user
    if acr_of(amr) == AAL2:
        mark_verified(request, kind=amr[-1], user=user)
    return HttpResponseRedirect(next_path)


def renew(request: HttpRequest, raised: StepUp) -> None:
    """After a step-up, change the session key and keep a proof for the next form that needs one."""
    staff = access.staff_at(request)
    request.session.cycle_key()
    request.session[PROOF] = proof_token_for(principal=staff.principal, verified=raised.verified)
    request.session[PROOF_ENDS] = time.time() + PROOF_TOKEN_SECONDS
    if not SECOND_FACTORS.isdisjoint(raised.verified):
        mark_verified(request, kind=raised.verified[-1], user=staff.user)


def has_proof(request: HttpRequest) -> bool:
    """Return whether a step-up within the last five minutes still counts as the proof of the next form."""
    return time.time() < float(request.session.get(PROOF_ENDS, 0))


def take_proof(request: HttpRequest) -> str | None:
    """Return the proof token of the last step-up, which works once; None if there is none or it has expired."""
    valid = has_proof(request)
    request.session.pop(PROOF_ENDS, None)
    token: str | None = request.session.pop(PROOF, None)
    return token if valid else None


def without_factor(request: HttpRequest) -> None:
    """Forget the factor of the sign-in after its owner has removed the only one."""
    request.session.cycle_key()
    request.session.pop(DEVICE_ID_SESSION_KEY, None)


def leave(request: HttpRequest) -> HttpResponseRedirect:
    """End the browser's session and redirect to the sign-in page."""
    request.session.flush()
    return HttpResponseRedirect(reverse("admin:login"))


def with_next(name: str, next_path: str) -> str:
    """Return the path of a page that leads on to `next_path`."""
    return f"{reverse(name)}?{urlencode({'next': next_path})}"
