"""The page where users enter the code that a device shows (RFC 8628 section 3.3).

A right code begins a request of this browser, which takes the same steps as one of the authorization endpoint: sign-in,
second step, and always consent, where the user compares the code.
"""

from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.timezone import now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from identity_platform.api import ratelimit
from openid.authorization.parameters import CONSENT, Parameters
from openid.authorization.requests import DEVICE_DECIDED, PendingRequest, begin_request
from openid.claims import mapped_claims_of
from openid.clients import find_client
from openid.device.codes import find_waiting, in_groups, sealed
from openid.errors import UserCodeUnknown
from openid.models import DeviceCode
from openid.pages.forms import PageForm, UserCodeForm
from openid.pages.journey import JourneyPage
from openid.pages.page import FormPage
from tenants.entering.lookup import TenantContext
from userflow.accounts.models import TenantClient
from userflow.credentials.attempts import caller_network
from userflow.errors import TooManyFromAddress
from userflow.sessions.cookies import cookie_digest
from userflow.sessions.verify import audiences_still_allowed, scopes_still_allowed

# Of one browser or session in the time of the network's limit.
MOST_WRONG_CODES: Final = 10


class DevicePage(FormPage, JourneyPage):
    """Ask for the code of a device, or go on with the one of a link."""

    # The code of a link begins a request.
    changes_by_get = True
    # The page begins a request; it has none.
    handle_in_address = journey_in_address = ""
    template = "device"
    title = gettext_lazy("Sign in on another device")
    form_class = UserCodeForm
    shown = (UserCodeUnknown, TooManyFromAddress)

    def get(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Show the form, use the code of a link, or say what became of a request."""
        decided = request.GET.get("decided")
        if decided in DEVICE_DECIDED:
            title = _("Your device is signed in") if decided == "approved" else _("Access denied")
            return self.page("device_decided", title, {"approved": decided == "approved"})
        if request.GET.get("user_code"):
            return self.process(UserCodeForm({"user_code": request.GET["user_code"]}))
        return super().get(request)

    def submit(self, form: PageForm) -> HttpResponse:
        """Begin a request of this browser for the device."""
        with self.entered():
            handle = self._request_of(form.cleaned_data["user_code"])
        return HttpResponse(status=303, headers={"Location": f"{self.root}/continue?request={handle}"})

    def _request_of(self, user_code: str) -> str:
        """Return the handle of a new request of this browser. Raises UserCodeUnknown, TooManyFromAddress."""
        # Counted before the code is looked up, and taken back if there is one.
        usages = ratelimit.count_all(*self._limits())
        for usage in usages:
            if usage.limited:
                ratelimit.take_back(*usages)
                raise TooManyFromAddress(retry_after=usage.retry_after)
        device_code = find_waiting(user_code)
        client = find_client(self.tenant, device_code.client_id) if device_code else None
        if device_code is None or client is None:
            raise UserCodeUnknown
        ratelimit.take_back(*usages)
        return begin_request(
            PendingRequest(self.tenant, client, _parameters(device_code, user_code, client, self.tenant), now()),
            self.browser,
        )

    def _limits(self) -> tuple[ratelimit.Limit, ratelimit.Limit]:
        """Return the limits of wrong codes: of the network, and of the session or browser."""
        most, seconds = settings.LIMITS["user_code"]
        caller_key = str(self.session.user_id) if self.session else cookie_digest(self.browser).hex()
        return (
            ratelimit.Limit("user_code", caller_network() or "local", most, seconds),
            ratelimit.Limit("user_code_of_browser", caller_key, min(most, MOST_WRONG_CODES), seconds),
        )


def _parameters(device_code: DeviceCode, user_code: str, client: TenantClient, tenant: TenantContext) -> Parameters:
    device = bytes(device_code.digest).hex()
    # The client may have been narrowed since the device began.
    scopes = scopes_still_allowed(device_code.scopes, client.scopes)
    mapped = mapped_claims_of(scopes, tenant)
    return Parameters(
        redirect_uri="",
        code_challenge="",
        scopes=scopes,
        audiences=audiences_still_allowed(device_code.audiences, client.audiences, tenant),
        id_token_claims=mapped,
        userinfo_claims=mapped,
        # Also for first-party applications: only the user can compare the code.
        prompts=(CONSENT,),
        max_age=client.default_max_age,
        device=device,
        user_code=sealed(in_groups(user_code), device),
    )
