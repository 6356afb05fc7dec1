"""What a browser has done of a sign-in that is not complete, in a sealed cookie for each journey.

Two tabs may sign in two accounts: each has a journey with a handle, which its addresses carry. That is the handle of the
application's request, or one of its own where no application has asked. Pages of the account have no journey: they act for
the user of the session.

The tickets in it are the API's: they work once, for minutes, and count wrong codes. The handle of the application's request
is kept here too, so that a user who follows the link of a mail in the same browser ends where the application asked.
"""

import base64
import binascii
import re
import secrets
import time
from dataclasses import asdict, dataclass, replace
from typing import Final

import orjson
from django.http import HttpRequest, HttpResponse

from identity_platform.api.email_addresses import email_key
from identity_platform.crypto import SealBroken, SealContext, hash_token, seal, unseal
from openid import browser
from openid.browser import STEPS
from tenants.entering.lookup import TenantContext

# As long as the link of a mail may be waited for.
LIFETIME_SECONDS: Final = 3600
# Cookies of more journeys could make the header longer than servers accept; the oldest go first.
MOST_JOURNEYS: Final = 5
_HANDLE: Final = re.compile("[A-Za-z0-9_-]{16}")


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps that are done."""

    # As typed; nothing tells whether a user has it.
    email: str = ""
    # The id of the registration that waits for its mail in this browser.
    registration: str = ""
    # After a right password: the ticket of the second step, its methods, and the ticket that enrolls a first factor.
    mfa_token: str = ""
    methods: tuple[str, ...] = ()
    enrollment_ticket: str = ""
    # The phone that a code was sent to, as it may be shown.
    phone: str = ""
    # The same of a step-up, which is the signed-in user's: a sign-in that was not completed may be another's.
    own_phone: str = ""
    # The authorization request that the browser came with.
    handle: str = ""
    # The handle of the journey, which is that of the request or one of its own.
    journey: str = ""
    # The token of the last step-up, which proves one change of the account, and until when.
    proof: str = ""
    proof_until: float = 0
    # A message for the next page (`openid.pages.page.NOTICES`).
    notice: str = ""

    def only_email(self, email: str) -> "Steps":
        """Return a new sign-in of this address."""
        return Steps(email=email, handle=self.handle, journey=self.journey)

    def with_notice(self, notice: str) -> "Steps":
        """Return the same steps with a message for the next page."""
        return replace(self, notice=notice)


def new_journey() -> str:
    """Return the handle of a journey that no application has begun."""
    return secrets.token_urlsafe(12)


def is_journey(handle: str) -> bool:
    """Return whether a text may be the handle of a journey that no application has begun."""
    return _HANDLE.fullmatch(handle) is not None


def read_steps(request: HttpRequest, tenant: TenantContext, journey: str) -> Steps:
    """Return the steps of a journey of this browser, those of no journey with "".

    None for a cookie that is missing, broken, expired or of another tenant.
    """
    return _unsealed_steps(request, tenant, _kind(journey))[1]


def latest_steps(request: HttpRequest, tenant: TenantContext, needed: str = "email", *, email: str = "") -> Steps:
    """Return the steps of the journey that the browser went on with last, of those that have the `needed` field.

    With an `email`, of those of this address. For addresses without a journey: links of mails, and bookmarks.
    """
    opened = [_unsealed_steps(request, tenant, kind) for kind in (STEPS, *_journeys(request, tenant))]
    suitable = [
        (until, journey_steps)
        for until, journey_steps in opened
        if getattr(journey_steps, needed) and (not email or email_key(journey_steps.email) == email_key(email))
    ]
    return max(suitable, key=lambda pair: pair[0], default=(0, Steps()))[1]


def write_steps(
    request: HttpRequest, response: HttpResponse, tenant: TenantContext, journey: str, journey_steps: Steps
) -> None:
    """Send the cookie of a journey's steps, or delete it if there are none; delete those of the oldest journeys."""
    kind = _kind(journey)
    if journey_steps in (Steps(), Steps(journey=journey)):
        if browser.cookie_name(kind, tenant.tenant_id) in request.COOKIES:
            browser.delete_cookie(response, kind, tenant.tenant_id)
        return
    stored_fields = {**asdict(journey_steps), "until": time.time() + LIFETIME_SECONDS}
    blob = seal(orjson.dumps(stored_fields), data_key=browser.steps_key(), context=_context(tenant, kind))
    value = base64.urlsafe_b64encode(blob).decode()
    browser.set_cookie(response, kind, tenant.tenant_id, value, max_age=LIFETIME_SECONDS)
    others = [other for other in _journeys(request, tenant) if other != kind]
    if len(others) >= MOST_JOURNEYS:
        newest_first = sorted(others, key=lambda other: _unsealed_steps(request, tenant, other)[0], reverse=True)
        for other in newest_first[MOST_JOURNEYS - 1 :]:
            browser.delete_cookie(response, other, tenant.tenant_id)


def _kind(journey: str) -> str:
    return f"{STEPS}.{hash_token(journey).hex()[:16]}" if journey else STEPS


def _journeys(request: HttpRequest, tenant: TenantContext) -> list[str]:
    """Return the kinds of the browser's cookies of journeys with this tenant."""
    before, after = browser.cookie_name(f"{STEPS}.", tenant.tenant_id).split(f"{STEPS}.")
    names = [name for name in request.COOKIES if name.startswith(f"{before}{STEPS}.") and name.endswith(after)]
    return [name.removeprefix(before).removesuffix(after) for name in names]


def _unsealed_steps(request: HttpRequest, tenant: TenantContext, kind: str) -> tuple[float, Steps]:
    """Return when the steps of a cookie expire, and the steps; (0, none) if it is not valid."""
    value = request.COOKIES.get(browser.cookie_name(kind, tenant.tenant_id), "")
    if not value:
        return 0, Steps()
    try:
        blob = base64.urlsafe_b64decode(value)
        stored_fields = orjson.loads(unseal(blob, data_key=browser.steps_key(), context=_context(tenant, kind)))
    except (SealBroken, binascii.Error, ValueError):
        return 0, Steps()
    until = stored_fields.pop("until")
    if until < time.time():
        return 0, Steps()
    return until, Steps(**{**stored_fields, "methods": tuple(stored_fields["methods"])})


def _context(tenant: TenantContext, kind: str) -> SealContext:
    # A cookie of a sign-in domain works there only, as all others do (userflow.sessions.cookies).
    row = tenant.sign_in_domain or "sign-in"
    return SealContext(tenant=str(tenant.tenant_id), table="cookie", column=kind, row=row)
