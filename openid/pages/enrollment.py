"""Enroll a factor: the first one, which a sign-in waits for, or one of a signed-in user."""

from dataclasses import dataclass, replace
from typing import ClassVar, Final
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.utils.translation import gettext_lazy as _

from identity_platform.api.email_addresses import shown_address
from identity_platform.api.errors import ApiError
from identity_platform.audit.origin import set_actor
from mfa.enrollment import enrollment_action
from mfa.errors import NoProof, SecretNotIssued
from mfa.factors import SMS, TOTP
from mfa.sms.actions import begin_sms_setup, confirm_sms_setup
from mfa.totp import actions as totp
from mfa.webauthn import registration as passkeys
from openid.authorization.flow import Step
from openid.pages import forms
from openid.pages.journey import JourneyPage
from openid.pages.page import Context, FormPage
from userflow.accounts.models import Account
from userflow.accounts.realms import END_USERS
from userflow.errors import InsufficientAuthentication, NotSignedInByTicket, ProofTokenInvalid
from userflow.sessions.assurance import require_assurance
from userflow.signin.caller import Caller
from userflow.signin.pipeline import SignedIn

# Errors that another page answers: the proof of the session or of the sign-in no longer counts.
_PROOF_LOST: Final = (InsufficientAuthentication, NotSignedInByTicket, NoProof, ProofTokenInvalid)


@dataclass(frozen=True, slots=True)
class Enroller:
    """The user who enrolls a factor, and the proof for it."""

    email: str
    caller: Caller
    # The sign-in that the first factor completes.
    mfa_token: str | None = None


class EnrollmentPage(JourneyPage):
    """A page that adds a factor, for a sign-in that waits for its first one or for a signed-in user."""

    needed = "enrollment_ticket"
    enroller: Enroller
    # The page that a step-up returns to.
    back: ClassVar[str] = "enroll"
    # The kind of factor of which a user has one at most.
    kind: ClassVar[str] = ""

    def _answer(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        enroller = self._enroller()
        if enroller is None:
            return self.to("signin")
        self.enroller = enroller
        if enroller.caller.principal is not None and not self._is_next():
            return self.to("continue")
        try:
            self._check_proof()
            return super()._answer(request, **kwargs)
        except (InsufficientAuthentication, ProofTokenInvalid):
            if self.is_data:
                return self._error_page(InsufficientAuthentication())
            return self.to("step-up", next=self.back)
        except (NotSignedInByTicket, NoProof):
            # The sign-in that the factor would complete has expired.
            self.journey_steps = replace(self.journey_steps.only_email(self.journey_steps.email), notice="expired")
            return self.to("signin")

    def _error_page(self, error: ApiError) -> HttpResponse:
        if isinstance(error, _PROOF_LOST) and not self.is_data:
            raise error
        return super()._error_page(error)

    def _is_next(self) -> bool:
        """Return whether a signed-in user may enroll a factor here: on the account's pages, or for an application that
        requires a second factor of a user who has none."""
        if not self.handle:
            return True
        return self.next_step() is Step.STEP_UP and self.session is not None and not self.session.user.mfa_methods

    def _check_proof(self) -> None:
        """Check session and proof before any work that would be lost. Raises InsufficientAuthentication."""
        principal = self.enroller.caller.principal
        if principal is not None:
            require_assurance(enrollment_action(principal.user["mfa_methods"], self.kind), principal)
            self.enroller = replace(self.enroller, caller=replace(self.enroller.caller, proof=self.require_proof()))

    @property
    def replaced(self) -> list[str]:
        """Return the kinds of factors that the signed-in user has, and would replace."""
        principal = self.enroller.caller.principal
        return list(principal.user["mfa_methods"]) if principal is not None else []

    def _enroller(self) -> Enroller | None:
        if self.own_account:
            return self._signed_in()
        if self.journey_steps.enrollment_ticket and self.journey_steps.mfa_token:
            caller = Caller(ticket=self.journey_steps.enrollment_ticket, delivery=self.delivery)
            return Enroller(self.journey_steps.email, caller, self.journey_steps.mfa_token)
        return self._signed_in()

    def _signed_in(self) -> Enroller | None:
        principal = self.principal
        if principal is None or self.session is None:
            return None
        set_actor(principal.kind, str(principal.id))
        return Enroller(self.session.user.email, Caller(principal=principal))

    @property
    def own_account(self) -> bool:
        """Return whether the address names the signed-in user: another one may have begun a sign-in in this browser."""
        return "own" in self.request.GET

    def journey_parameters(self, name: str = "enroll") -> dict[str, str]:
        """Return also the parameter that keeps pages of this enrollment at the same user."""
        is_for_owner = self.own_account and name.partition("/")[0] == "enroll"
        return {**({"own": "1"} if is_for_owner else {}), **super().journey_parameters(name)}

    @property
    def journey_in_address(self) -> str:
        return self.handle_in_address if self.own_account else super().journey_in_address

    @property
    def account(self) -> str:
        ticket = self.journey_steps.enrollment_ticket
        return f"{self.journey_steps.email} {ticket}" if ticket and not self.own_account else ""

    @property
    def waits(self) -> bool:
        """Return whether a sign-in waits for the factor."""
        return self.enroller.mfa_token is not None

    def _forget_proof(self) -> None:
        if self.enroller.caller.proof:
            self.journey_steps = replace(self.journey_steps, proof="")

    def done(self, signed_in: SignedIn[Account] | None, notice: str) -> HttpResponse:
        """Go on after a factor was enrolled, which may complete a sign-in.

        It raises no session: that is a step of its own, with a proof from before.
        """
        if signed_in is not None:
            return self.enter(signed_in)
        self._forget_proof()
        if self.handle:
            return self.to("continue")
        return self.to_with(notice, "account/security")


class ChooseFactorPage(EnrollmentPage):
    """Choose the kind of the new factor."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show the kinds."""
        context = {**self.application(), "who": self.enroller.email, "waits": self.waits or bool(self.handle)}
        context["replaced"] = self.replaced
        return self.page("enroll", _("Protect your account"), context)


class EnrollmentFormPage(FormPage, EnrollmentPage):
    """A page that adds a factor by a form."""

    not_shown = _PROOF_LOST


class NewAppPage(EnrollmentFormPage):
    """Set up an authenticator app. Only a button creates a secret: few may be pending."""

    back = "enroll/app"
    kind = TOTP
    form_class = forms.NewTotpForm

    def get(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Return to the choice: a page view must not use up a pending secret."""
        return self.to("enroll")

    def post(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Show a new secret, or enroll it with its first code."""
        return super().post(request) if "code" in request.POST else self._new_secret()

    def submit(self, form: forms.PageForm) -> HttpResponse:
        """Enroll the secret."""
        try:
            confirmed = totp.confirm_totp_setup(
                realm=END_USERS,
                tenant_id=self.tenant.tenant_id,
                email=self.enroller.email,
                secret=form.cleaned_data["secret"],
                code=form.cleaned_data["code"],
                caller=self.enroller.caller,
                mfa_token=self.enroller.mfa_token,
            )
        except SecretNotIssued as problem:
            return self._new_secret(problem)
        self._forget_proof()
        response = codes_page(self, confirmed.backup_codes, self.enroller.email)
        return self.enter(confirmed.signed_in, response) if confirmed.signed_in is not None else response

    def _new_secret(self, error: ApiError | None = None) -> HttpResponse:
        setup = totp.begin_totp_setup(
            realm=END_USERS, tenant_id=self.tenant.tenant_id, email=self.enroller.email, caller=self.enroller.caller
        )
        return self._page(forms.NewTotpForm(initial={"secret": setup.secret}), setup, error)

    def show(self, form: forms.PageForm, error: ApiError | None = None) -> HttpResponse:
        """Show the scanned secret again after a wrong code."""
        try:
            setup = totp.show_totp_setup_again(
                realm=END_USERS,
                tenant_id=self.tenant.tenant_id,
                email=self.enroller.email,
                secret=form.data.get("secret", ""),
                caller=self.enroller.caller,
            )
        except SecretNotIssued as problem:
            return self._new_secret(problem)
        return self._page(form, setup, error)

    def _page(self, form: forms.PageForm, setup: totp.Setup, error: ApiError | None) -> HttpResponse:
        context = {**self.application(), "setup": setup}
        return self.page("enroll_app", _("Set up your authenticator app"), context, form=form.focus(), error=error)


class NewPasskeyPage(EnrollmentFormPage):
    """Add a passkey: the page's button asks the browser for one."""

    back = "enroll/passkey"
    template = "enroll_passkey"
    title = _("Create a passkey")
    form_class = forms.PasskeyForm

    def submit(self, form: forms.PageForm) -> HttpResponse:
        """Store the passkey."""
        try:
            enrolled = passkeys.finish_registration(
                realm=END_USERS,
                tenant_id=self.tenant.tenant_id,
                email=self.enroller.email,
                credential=form.cleaned_data["credential"],
                caller=self.enroller.caller,
                mfa_token=self.enroller.mfa_token,
            )
        except _PROOF_LOST:
            raise
        except ApiError as error:
            return self.show(forms.PasskeyForm(), error)
        return self.done(enrolled.signed_in, "passkey_added")

    def context(self) -> Context:
        return {**self.application(), "who": self.enroller.email}


class CreationOptions(EnrollmentPage):
    """The options for `navigator.credentials.create()`."""

    is_data = True

    def post(self, request: HttpRequest) -> HttpResponse:
        """Return the options."""
        return JsonResponse(
            passkeys.begin_registration(
                realm=END_USERS, tenant_id=self.tenant.tenant_id, email=self.enroller.email, caller=self.enroller.caller
            )
        )


class NewPhonePage(EnrollmentFormPage):
    """Add a phone that receives codes: the number first, then the code."""

    back = "enroll/phone"
    kind = SMS
    template = "enroll_phone"
    title = _("Add your mobile number")
    # That waits for its code.
    number = ""

    def new_form(self, data: QueryDict | None = None) -> forms.PageForm:
        if data is None or "sms_code" not in data:
            return forms.PhoneForm(data)
        self.number = str(data.get("phone_number", ""))[:32]
        return forms.NewPhoneForm(data)

    def submit(self, form: forms.PageForm) -> HttpResponse:
        """Send a code to the number, or enroll it with the code."""
        enroller, tenant_id = self.enroller, self.tenant.tenant_id
        if isinstance(form, forms.PhoneForm):
            number = form.cleaned_data["phone_number"]
            begin_sms_setup(
                tenant_id=tenant_id, client_id=None, email=enroller.email, phone_number=number, caller=enroller.caller
            )
            self.number = number
            return self.show(forms.NewPhoneForm(initial={"phone_number": number}))
        confirmed = confirm_sms_setup(
            tenant_id=tenant_id,
            client_id=None,
            email=enroller.email,
            phone_number=self.number,
            code=form.cleaned_data["sms_code"],
            caller=enroller.caller,
            mfa_token=enroller.mfa_token,
        )
        return self.done(confirmed.signed_in, "factor_added")

    def context(self) -> Context:
        return {**self.application(), "number": self.number}


def codes_page(page: JourneyPage, codes: list[str], email: str) -> HttpResponse:
    """Show new backup codes, once."""
    text = "\n".join([_("Backup codes of %(email)s") % {"email": shown_address(email)}, "", *codes, ""])
    context = {
        **page.application(),
        "codes": codes,
        "file": "data:text/plain;charset=utf-8," + quote(text),
        "go_on": page.href("continue" if page.handle or page.journey_steps.mfa_token else "account/security"),
    }
    return page.page("backup_codes", _("Save your backup codes"), context)
