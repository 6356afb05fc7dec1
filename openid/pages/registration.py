"""Create an account, accept an invitation, set a new password, verify an address."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.translation import gettext_lazy as _

from identity_platform.api.email_addresses import email_key
from identity_platform.api.errors import ApiError, NotAllowed
from openid.pages import forms
from openid.pages.journey import NO_STEPS, JourneyPage
from openid.pages.page import FormPage
from openid.pages.sign_in import PasswordSignIn
from userflow.accounts.models import EndUser
from userflow.credentials import email_verification
from userflow.email.actions import Registrant, resend_email_proof, verify_email_by_code, verify_email_by_token
from userflow.endusers.actions import register_end_user
from userflow.errors import EmailProofInvalid, InvitationInvalid, RegistrationClosed
from userflow.invitations.acceptance import accept_invitation
from userflow.mailed_tokens import is_of_tenant
from userflow.passwords.actions import ask_for_end_user_reset, reset_end_user_password


class NewPasswordPage(FormPage, PasswordSignIn):
    def form_options(self) -> dict[str, Any]:
        return {"least": self.tenant.effective["password_min_length"]}

    def is_ours(self, token: str) -> bool:
        """Return whether a mailed token is one of this tenant: the form of another tenant's page takes no other."""
        return is_of_tenant(token, self.tenant.tenant_id)


class RegisterPage(NewPasswordPage):
    """Create an account and sign in with it."""

    template = "register"
    title = _("Create your account")
    form_class = forms.RegisterForm

    def get(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Show the form."""
        options = self.form_options()
        self.remember_request()
        return self.show(forms.RegisterForm(initial={"email": self.expected_email}, **options))

    def form_options(self) -> dict[str, Any]:
        """Return the arguments of the form. Raises RegistrationClosed."""
        if self.registration_client is None:
            raise RegistrationClosed
        return super().form_options()

    def submit(self, form: forms.PageForm) -> HttpResponse:
        """Register the user, and sign in."""
        given = form.cleaned_data
        assert self.registration_client is not None  # otherwise there is no form
        user, _ticket = register_end_user(
            tenant_id=self.tenant.tenant_id, client_id=self.registration_client.pk, **given
        )
        if email_verification.is_required(self.tenant):
            self.journey_steps = replace(self.journey_steps.only_email(given["email"]), registration=str(user.pk))
            return self.to("verify-email")
        return self.sign_in(given["email"], given["password"])


class ForgotPage(FormPage, JourneyPage):
    """Ask for a mail with a link that sets a new password."""

    template = "forgot"
    title = _("Reset your password")
    form_class = forms.AddressForm

    def get(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Show the form."""
        self.remember_request()
        return self.show(forms.AddressForm(initial={"email": self.expected_email}))

    def submit(self, form: forms.PageForm) -> HttpResponse:
        """Send the mail. The response is the same whether or not the address is known."""
        email = form.cleaned_data["email"]
        ask_for_end_user_reset(email=email, tenant_id=self.tenant.tenant_id)
        self.journey_steps = self.journey_steps.only_email(email)
        # The link of the mail goes on with it.
        self.begin_journey()
        return self.page("forgot_sent", _("Check your mail"), {**self.application(), "who": email})


class ResetPage(NewPasswordPage):
    """Set a new password with the link of a mail. The script takes the token from the address, which browsers do not send."""

    needed = "journey"
    template = "reset"
    title = _("Set a new password")
    form_class = forms.ResetForm

    def submit(self, form: forms.PageForm) -> HttpResponse:
        """Set the password; the user signs in with it then, with the second factor if there is one."""
        given = form.cleaned_data
        reset = reset_end_user_password(
            token=given["token"], password=given["password"], tenant_id=self.tenant.tenant_id
        )
        self.go_on_with(reset.email)
        self.journey_steps = self.journey_steps.with_notice("password_changed")
        response = self.to("signin/password")
        with self.entered():
            ended = self.held_session() is None
        # The link may be another user's than the one who is signed in here.
        return self.leave_session(response) if ended else response


class InvitationPage(NewPasswordPage):
    """Accept an invitation: the link of its mail creates the user."""

    needed = "journey"
    template = "invitation"
    title = _("Accept your invitation")
    form_class = forms.InvitationForm

    def submit(self, form: forms.PageForm) -> HttpResponse:
        """Create the user, and sign in."""
        given = form.cleaned_data
        if not self.is_ours(given["token"]):
            raise InvitationInvalid
        accepted = accept_invitation(**given)
        response = self.sign_in(accepted.user.email, given["password"])
        if self.journey_steps == NO_STEPS and not self.handle:
            # The page shows the application of the invitation too.
            self.tell_at_account("account_ready")
        return response


class VerifyEmailPage(NewPasswordPage):
    """Verify an address with the link of its mail, or with the code in it.

    It has a form for each: the script hides that of the code if the address has a token.
    """

    needed = "journey"
    template = "verify_email"
    title = _("Verify your e-mail address")

    def post(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Verify the address, or send another mail."""
        return self._send_again(request) if "again" in request.POST else super().post(request)

    def new_form(self, data: QueryDict | None = None) -> forms.PageForm:
        if data is None:
            return forms.VerifyCodeForm(initial={"email": self.expected_email})
        return forms.VerifyLinkForm(data) if "token" in data else forms.VerifyCodeForm(data)

    def submit(self, form: forms.PageForm) -> HttpResponse:
        """Verify the address."""
        given = form.cleaned_data
        # Who is signed in with this address has set it up: nothing from before the verification ends.
        registrant = Registrant(principal=self.principal)
        try:
            if isinstance(form, forms.VerifyLinkForm):
                if not self.is_ours(given["token"]):
                    raise EmailProofInvalid
                user = verify_email_by_token(token=given["token"], registrant=registrant)
            else:
                user = verify_email_by_code(
                    tenant_id=self.tenant.tenant_id,
                    registrant=registrant,
                    user_id=self._registration_of(given["email"]),
                    **given,
                )
        except NotAllowed as error:
            if self.session is None:
                return self.show(self.new_form(), error)
            # The link is another user's than the one who is signed in here; it stays valid.
            return self.page("other_user", self.title, {"signed_in": self.session.user.email}, status=403)
        assert isinstance(user, EndUser)  # a token of this tenant's
        self.__dict__.pop("session", None)
        if self.session is not None and not self.handle:
            self.tell_at_account("email_verified")
            return self.to("account")
        if self.session is not None:
            return self.to_with("email_verified", "continue")
        self.go_on_with(user.email)
        self.journey_steps = self.journey_steps.with_notice("email_verified")
        return self.to("signin/password")

    def _registration_of(self, email: str) -> UUID | None:
        """Return the registration that this browser waits for, if it is one of this address.

        The code of another registration of the address, which another person may have made, does not verify it.
        """
        if self.journey_steps.registration and email_key(self.journey_steps.email) == email_key(email):
            return UUID(self.journey_steps.registration)
        return None

    def _send_again(self, request: HttpRequest) -> HttpResponse:
        form = forms.AddressForm(request.POST)
        if not form.is_valid():
            return self.show(form)
        email = form.cleaned_data["email"]
        registration = self._registration_of(email)
        try:
            resend_email_proof(tenant_id=self.tenant.tenant_id, email=email, user_id=registration)
        except ApiError as error:
            return self.show(self.new_form(), error)
        journey_steps = replace(self.journey_steps.only_email(email), registration=str(registration or ""))
        self.journey_steps = journey_steps.with_notice("mail_sent")
        return self.to("verify-email")

    def show(self, form: forms.PageForm, error: ApiError | None = None) -> HttpResponse:
        context = {
            **self.application(),
            "by_link": form if isinstance(form, forms.VerifyLinkForm) else forms.VerifyLinkForm(),
            "by_code": form if isinstance(form, forms.VerifyCodeForm) else self.new_form(),
            "who": self.expected_email,
            "another_mail": forms.AddressForm(auto_id="another_mail_%s"),
        }
        return self.page(self.template, self.title, context, form=form, error=error)
