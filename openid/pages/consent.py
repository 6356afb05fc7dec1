"""Back to the application: the account that is used, what the application gets, and the answer."""

from collections.abc import Collection
from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from identity_platform.api.errors import ApiError
from openid.authorization.flow import Step, choose_account, deny, record_consent
from openid.authorization.parameters import Parameters
from openid.authorization.requests import PendingRequest
from openid.device.codes import find_device, unsealed
from openid.errors import ACCESS_DENIED
from openid.pages import errors
from openid.pages.journey import JourneyPage, SignedInPage
from tenants.entering.lookup import TenantContext
from tenants.settings.resource_names import resource_names

# What a scope lets an application do, in words. Scopes of the tenant's own are shown by their names.
IN_WORDS: Final = {
    "openid": gettext_lazy("Know that it is you, by an identifier"),
    "profile": gettext_lazy("See your name and language"),
    "email": gettext_lazy("See your e-mail address"),
    "phone": gettext_lazy("See your phone number"),
    "groups": gettext_lazy("See the groups that you are in"),
    "roles": gettext_lazy("See your roles"),
    "offline_access": gettext_lazy("Keep this access while you are not using it"),
    # Audiences: who accepts the tokens. Resources of the tenant's own are shown by the names that it gives them.
    settings.TOKEN_AUDIENCE: gettext_lazy("Call this service for you, as far as listed here"),
}


def in_words(granted: Collection[str], metadata: Collection[str]) -> list[str]:
    """Return these scopes, audiences and mapped claims in words, without those that have none."""
    words = [str(text) for name, text in IN_WORDS.items() if name in granted]
    if metadata:
        # The keys that the tenant has chosen, by the names that its applications know.
        words.append(_("See from your profile: %(names)s") % {"names": ", ".join(sorted(metadata))})
    return words


def further_grants(granted: Collection[str], tenant: TenantContext) -> list[tuple[str, bool]]:
    """Return the scopes and audiences that have no words of the platform's, and whether the tenant has named them.

    A resource with a name is shown by it, everything else as it is.
    """
    names = resource_names(tenant.settings)
    return sorted((names.get(entry, entry), entry in names) for entry in set(granted).difference(IN_WORDS))


class ContinuePage(JourneyPage):
    """Go on to the next step of the application's request, or back to the application."""

    # A code is issued.
    changes_by_get = True

    def get(self, request: HttpRequest) -> HttpResponse:
        """Redirect. Without a request the user goes to the account page."""
        return self.go_on()


class RequestPage(SignedInPage):
    """A page that only a request of an application leads to."""

    step: Step
    authorization_request: PendingRequest

    def _answer(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        try:
            if self.pending is None:
                raise errors.RequestMissing
            self.authorization_request = self.pending
        except ApiError as error:
            return self._error_page(error)
        if self.session is not None and self.next_step() is not self.step:
            return self.to("continue")
        return super()._answer(request, **kwargs)


class SelectAccountPage(RequestPage):
    """Go on with the account that is signed in, or with another one."""

    step = Step.SELECT_ACCOUNT

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show the account."""
        context = {**self.application(), "user": self.user, "another": self.href("signin", another="1")}
        return self.page("select_account", _("Choose an account"), context)

    def post(self, request: HttpRequest) -> HttpResponse:
        """Go on with the account."""
        with self.entered():
            choose_account(self.authorization_request, self.own_session)
        return self.to("continue")


class ConsentPage(RequestPage):
    """Show what the application gets, and let the user allow or deny it."""

    step = Step.CONSENT

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show the application, the account, and the scopes and audiences in words."""
        parameters = self.authorization_request.parameters
        scopes_and_audiences = parameters.consent_scopes.union(parameters.audiences)
        context = {
            **self.application(),
            "user": self.user,
            "grants": in_words(scopes_and_audiences, parameters.mapped_claims),
            "further": further_grants(scopes_and_audiences, self.tenant),
        }
        title = _("Allow %(application)s to use your account?") % {
            "application": self.authorization_request.client.name
        }
        if parameters.device:
            title = _("Sign in to %(application)s on another device?") % {
                "application": self.authorization_request.client.name
            }
            context |= self._device(parameters)
        return self.page("consent", title, context)

    def _device(self, parameters: Parameters) -> dict[str, object]:
        """Return the code to compare, and since when and where a device shows it. Raises RequestExpired."""
        with self.entered():
            device_code = find_device(parameters.device)
            code = unsealed(parameters.user_code, parameters.device)
        return {"user_code": code, "since": device_code.created_at, "address": device_code.address}

    def post(self, request: HttpRequest) -> HttpResponse:
        """Store the consent and go on, or answer the application that access was denied."""
        with self.entered():
            if "allow" in request.POST:
                record_consent(self.authorization_request, self.own_session)
                return self.to("continue")
            response = deny(self.authorization_request, ACCESS_DENIED, "The user has denied access.")
        return self.respond(response, self.authorization_request.client)
