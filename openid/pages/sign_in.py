"""Sign in with address and password, or with a passkey. Unknown addresses get the same pages."""

from dataclasses import replace

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext_lazy as _

from identity_platform.api.errors import ApiError
from mfa.stepup.actions import options_for_step_up
from mfa.webauthn import authentication as passkeys
from openid.authorization.flow import Step
from openid.pages import errors, forms
from openid.pages.journey import JourneyPage
from openid.pages.page import Context, FormPage
from userflow.accounts.models import EndUser
from userflow.accounts.realms import END_USERS
from userflow.credentials import email_verification
from userflow.email.actions import remind_of_email_proof
from userflow.errors import EmailNotVerified, PasskeyNotVerified, WrongCredentials
from userflow.signin.caller import Caller
from userflow.signin.password import sign_in_browser
from userflow.signin.pipeline import SignedIn, Waiting

# The stages of a page with a passkey, for the options of the ceremony.
SIGN_IN, SECOND_STEP, STEP_UP = "sign_in", "second_step", "step_up"


class PasswordSignIn(JourneyPage):
    """A page that signs a user in with a password."""

    def sign_in(self, email: str, password: str) -> HttpResponse:
        """Check a password and go on: to the application, to the second step, or to what the tenant requires first.

        Raises what `sign_in_browser` raises, but WrongOrUnverified in place of EmailNotVerified, and of WrongCredentials where
        the tenant requires a verified address: an unverified account may be one that an attacker registered to learn whether
        the address was free. Its owner gets the mail again.
        """
        try:
            result = sign_in_browser(
                tenant_id=self.tenant.tenant_id,
                email=email,
                password=password,
                delivery=replace(self.delivery, remembered=self.device_cookie),
            )
        except EmailNotVerified as problem:
            remind_of_email_proof(tenant_id=self.tenant.tenant_id, email=email)
            raise errors.WrongOrUnverified from problem
        except WrongCredentials as problem:
            if email_verification.is_required(self.tenant):
                raise errors.WrongOrUnverified from problem
            raise
        return self._after_password(result)

    def _after_password(self, result: SignedIn[EndUser] | Waiting[EndUser]) -> HttpResponse:
        if isinstance(result, SignedIn):
            response = self.enter(result)
            return response if result.remembered is None else self.keep_device(response, result.remembered)
        self.journey_steps = replace(
            self.journey_steps.only_email(result.user.email),
            mfa_token=result.mfa_token,
            methods=result.methods,
            enrollment_ticket=result.enrollment_ticket or "",
        )
        return self.to("enroll" if result.enrollment_required else "signin/verify")


class PasskeySignIn(FormPage, JourneyPage):
    """A page whose form can also sign a user in with a passkey, whichever user it belongs to."""

    def post(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Check the passkey, or submit the form."""
        if "credential" not in request.POST:
            return super().post(request)
        sent = forms.PasskeyForm(request.POST)
        if not sent.is_valid():
            return self.show(self.form_class(), PasskeyNotVerified())
        try:
            verified = passkeys.finish_authentication(
                realm=END_USERS,
                tenant_id=self.tenant.tenant_id,
                email=None,
                response=sent.cleaned_data["credential"],
                caller=Caller(delivery=self.delivery),
            )
        except EmailNotVerified:
            # No mail was sent, and the page must not tell whose passkey it was: it asks for the address.
            self.journey_steps = self.journey_steps.only_email("")
            return self.to("verify-email")
        except ApiError as error:
            return self.show(self.form_class(), error)
        assert verified.signed_in is not None  # a passkey without an address signs in, or is rejected
        return self.enter(verified.signed_in)


class SignInPage(PasswordSignIn, PasskeySignIn):
    """Ask for address and password, and accept a passkey that the browser offers."""

    template = "sign_in"
    title = _("Sign in")
    form_class = forms.SignInForm

    def get(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Show the page, unless the browser's session is enough. `again` is for one that cannot be verified otherwise."""
        if self.next_step() is not Step.SIGN_IN and not {"another", "again"} & request.GET.keys():
            return self.to("continue")
        return self.ask(another="another" in request.GET)

    def ask(self, *, another: bool = False) -> HttpResponse:
        """Show the form, with the address that is probably the user's unless `another` one is to be entered."""
        self.remember_request()
        return self.show(forms.SignInForm(initial={"email": "" if another else self.expected_email}))

    def submit(self, form: forms.PageForm) -> HttpResponse:
        """Sign in with the password."""
        email = form.cleaned_data["email"]
        self.journey_steps = self.journey_steps.only_email(email)
        return self.sign_in(email, form.cleaned_data["password"])

    def context(self) -> Context:
        return {
            **self.application(),
            "action": self.href("signin"),
            "may_register": self.registration_client is not None,
            "stage": SIGN_IN,
            "verifies": email_verification.is_required(self.tenant),
        }


class PasswordPage(PasswordSignIn, PasskeySignIn):
    """Ask for the password of an address that is known from a mail, or for a passkey."""

    needed = "email"
    template = "password"
    title = _("Enter your password")
    form_class = forms.PasswordForm

    @property
    def account(self) -> str:
        return self.journey_steps.email

    def get(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Show the page."""
        return super().get(request) if self.journey_steps.email else self.to("signin")

    def post(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Check the password or the passkey. Unknown users, wrong passwords and inactive users get the same response."""
        return super().post(request) if self.journey_steps.email else self.to("signin")

    def submit(self, form: forms.PageForm) -> HttpResponse:
        """Sign in with the password."""
        return self.sign_in(self.journey_steps.email, form.cleaned_data["password"])

    def context(self) -> Context:
        required = email_verification.is_required(self.tenant)
        return {**self.application(), "stage": SIGN_IN, "verifies": required}


class PasskeyOptions(JourneyPage):
    """The options for `navigator.credentials.get()`, for pages with a passkey."""

    is_data = True

    def post(self, request: HttpRequest) -> HttpResponse:
        """Return the options for the stage of the page."""
        stage = request.POST.get("stage")
        if stage == STEP_UP and self.principal is not None:
            return JsonResponse(options_for_step_up(principal=self.principal))
        email = self.journey_steps.email if stage == SECOND_STEP and self.journey_steps.mfa_token else None
        if stage != SIGN_IN and email is None:
            raise errors.RequestMissing
        return JsonResponse(
            passkeys.begin_authentication(realm=END_USERS, tenant_id=self.tenant.tenant_id, email=email)
        )
