"""What a browser has done of a sign-in that is not complete, in a sealed cookie.

The tickets in it are the API's: they work once, for minutes, and count wrong codes. The handle of the application's request
is kept here too, so that a user who follows the link of a mail in the same browser ends where the application asked.
"""

import base64
import binascii
import time
from dataclasses import asdict, dataclass, replace
from typing import Final

import orjson
from django.http import HttpRequest, HttpResponse

from identity_platform.crypto import SealBroken, SealContext, seal, unseal
from openid import browser
from tenants.lookup import TenantContext

# As long as the link of a mail may be waited for.
LIFETIME_SECONDS: Final = 3600


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
    # The token of the last step-up, which proves one change of the account, and until when.
    proof: str = ""
    proof_until: float = 0
    # A message for the next page (`openid.pages.page.NOTICES`).
    notice: str = ""

    def only_email(self, email: str) -> "Steps":
        """Return a new sign-in of this address."""
        return Steps(email=email, handle=self.handle)

    def with_notice(self, notice: str) -> "Steps":
        """Return the same steps with a message for the next page."""
        return replace(self, notice=notice)


def read_steps(request: HttpRequest, tenant: TenantContext) -> Steps:
    """Return the steps of this browser; none for a cookie that is missing, broken, expired or of another tenant."""
    value = request.COOKIES.get(browser.cookie_name(browser.STEPS, tenant.tenant_id), "")
    if not value:
        return Steps()
    try:
        blob = base64.urlsafe_b64decode(value)
        kept = orjson.loads(unseal(blob, data_key=browser.steps_key(), context=_context(tenant)))
    except (SealBroken, binascii.Error, ValueError):
        return Steps()
    if kept.pop("until") < time.time():
        return Steps()
    return Steps(**{**kept, "methods": tuple(kept["methods"])})


def write_steps(response: HttpResponse, tenant: TenantContext, steps: Steps) -> None:
    """Send the cookie of these steps, or delete it if there are none."""
    if steps == Steps():
        browser.delete_cookie(response, browser.STEPS, tenant.tenant_id)
        return
    kept = {**asdict(steps), "until": time.time() + LIFETIME_SECONDS}
    blob = seal(orjson.dumps(kept), data_key=browser.steps_key(), context=_context(tenant))
    value = base64.urlsafe_b64encode(blob).decode()
    browser.set_cookie(response, browser.STEPS, tenant.tenant_id, value, max_age=LIFETIME_SECONDS)


def _context(tenant: TenantContext) -> SealContext:
    # A cookie of a sign-in domain works there only, as all others do (userflow.sessions.cookies).
    row = tenant.sign_in_domain or "sign-in"
    return SealContext(tenant=str(tenant.tenant_id), table="cookie", column=browser.STEPS, row=row)
