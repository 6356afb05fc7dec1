"""Create an account, accept an invitation, set a new password, verify an address."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from identity_platform.api.errors import ApiError, NotAllowed
from openid.pages import errors, forms
from openid.pages.sign_in import PasswordSignIn
from tenants.context import in_tenant
from tenants.states import Purpose
from userflow.accounts.models import Client, EndUser
from userflow.credentials import email_verification
from userflow.email.actions import Registrant, resend_email_proof, verify_email_by_code, verify_email_by_token
from userflow.endusers.actions import register_end_user
from userflow.endusers.taken import tell_owner
from userflow.errors import EmailProofInvalid, EmailTaken, InvitationInvalid, RegistrationClosed
from userflow.invitations.acceptance import accept_invitation
from userflow.mailed_tokens import is_of_tenant
from userflow.passwords.actions import ask_for_end_user_reset, reset_end_user_password


class NewPasswordPage(PasswordSignIn):
    """A page with a new password."""

    @property
    def least(self) -> int:
        """Return the minimum number of characters."""
        return self.tenant.effective["password_min_length"]

    def is_ours(self, token: str) -> bool:
        """Return whether a mailed token is one of this tenant: the form of another tenant's page takes no other."""
        return is_of_tenant(token, self.tenant.tenant_id)


class RegisterPage(NewPasswordPage):
    """Create an account and sign in with it."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show the form."""
        if self.registration_client is None:
            raise RegistrationClosed
        self.remember_request()
        return self._page(forms.RegisterForm(least=self.least, initial={"email": self.expected_email}))

    def post(self, request: HttpRequest) -> HttpResponse:
        """Register the user, and sign in."""
        client = self.registration_client
        if client is None:
            raise RegistrationClosed
        form = forms.RegisterForm(request.POST, least=self.least)
        if not form.is_valid():
            return self._page(form)
        given = form.cleaned_data
        try:
            self._register(client, given)
            if email_verification.is_required(self.tenant):
                self.steps = self.steps.only_email(given["email"])
                return self.to("verify-email")
            return self.sign_in(given["email"], given["password"])
        except ApiError as error:
            errors.add_to(form, error)
            return self._page(form, error)

    def _register(self, client: Client, given: dict[str, Any]) -> None:
        """Store the user, or tell the owner of a taken address: the next page is the same.

        Raises EmailTaken where no address needs verification: there a new user is signed in at once, which tells as much.
        """
        try:
            register_end_user(tenant_id=self.tenant.tenant_id, client_id=client.pk, **given)
        except EmailTaken:
            if not email_verification.is_required(self.tenant):
                raise
            tell_owner(tenant_id=self.tenant.tenant_id, email=given["email"], password=given["password"])

    def _page(self, form: forms.PageForm, error: ApiError | None = None) -> HttpResponse:
        return self.page("register", _("Create your account"), self.application(), form=form.focus(), error=error)


class ForgotPage(PasswordSignIn):
    """Ask for a mail with a link that sets a new password."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show the form."""
        self.remember_request()
        return self._page(forms.AddressForm(initial={"email": self.expected_email}))

    def post(self, request: HttpRequest) -> HttpResponse:
        """Send the mail. The response is the same whether or not the address is known."""
        form = forms.AddressForm(request.POST)
        if not form.is_valid():
            return self._page(form)
        email = form.cleaned_data["email"]
        try:
            ask_for_end_user_reset(email=email, tenant_id=self.tenant.tenant_id)
        except ApiError as error:
            errors.add_to(form, error)
            return self._page(form, error)
        self.steps = self.steps.only_email(email)
        return self.page("forgot_sent", _("Check your mail"), {**self.application(), "who": email})

    def _page(self, form: forms.PageForm, error: ApiError | None = None) -> HttpResponse:
        return self.page("forgot", _("Reset your password"), self.application(), form=form.focus(), error=error)


class ResetPage(NewPasswordPage):
    """Set a new password with the link of a mail."""

    from_mail = True

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show the form. The script takes the token from the address, which browsers do not send."""
        return self._page(forms.ResetForm(least=self.least))

    def post(self, request: HttpRequest) -> HttpResponse:
        """Set the password; the user signs in with it then, with the second factor if there is one."""
        form = forms.ResetForm(request.POST, least=self.least)
        if not form.is_valid():
            return self._page(form)
        given = form.cleaned_data
        try:
            reset_end_user_password(token=given["token"], password=given["password"], tenant_id=self.tenant.tenant_id)
        except ApiError as error:
            errors.add_to(form, error)
            return self._page(form, error)
        self.steps = self.steps.only_email(self.steps.email).with_notice("password_changed")
        response = self.to("signin/password" if self.steps.email else "signin")
        with in_tenant(self.tenant.tenant_id, Purpose.SIGN_IN):
            ended = self.held_session() is None
        # The link may be another user's than the one who is signed in here.
        return self.leave_session(response) if ended else response

    def _page(self, form: forms.PageForm, error: ApiError | None = None) -> HttpResponse:
        return self.page("reset", _("Set a new password"), self.application(), form=form.focus(), error=error)


class InvitationPage(NewPasswordPage):
    """Accept an invitation: the link of its mail creates the user."""

    from_mail = True

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show the form."""
        return self._page(forms.InvitationForm(least=self.least))

    def post(self, request: HttpRequest) -> HttpResponse:
        """Create the user, and sign in."""
        form = forms.InvitationForm(request.POST, least=self.least)
        if not form.is_valid():
            return self._page(form)
        given = form.cleaned_data
        try:
            if not self.is_ours(given["token"]):
                raise InvitationInvalid
            accepted = accept_invitation(**given)
            return self.sign_in(accepted.user.email, given["password"])
        except ApiError as error:
            errors.add_to(form, error)
            return self._page(form, error)

    def _page(self, form: forms.PageForm, error: ApiError | None = None) -> HttpResponse:
        return self.page("invitation", _("Accept your invitation"), self.application(), form=form.focus(), error=error)


class VerifyEmailPage(NewPasswordPage):
    """Verify an address with the link of its mail, or with the code in it."""

    from_mail = True

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show both forms: the script hides that of the code if the address has a token."""
        return self._page(None)

    def post(self, request: HttpRequest) -> HttpResponse:
        """Verify the address, or send another mail."""
        if "again" in request.POST:
            return self._send_again(request)
        by_link = "token" in request.POST
        form: forms.PageForm = forms.VerifyLinkForm(request.POST) if by_link else forms.VerifyCodeForm(request.POST)
        if not form.is_valid():
            return self._page(form)
        given = form.cleaned_data
        # Who is signed in with this address has set it up: nothing from before the verification ends.
        registrant = Registrant(principal=self.principal)
        try:
            if by_link:
                if not self.is_ours(given["token"]):
                    raise EmailProofInvalid
                user = verify_email_by_token(token=given["token"], registrant=registrant)
            else:
                user = verify_email_by_code(tenant_id=self.tenant.tenant_id, registrant=registrant, **given)
        except NotAllowed as error:
            # The link is another user's than the one who is signed in here; it stays valid.
            return self._page(None, error, signed_in=self.session.user.email if self.session is not None else "")
        except ApiError as error:
            errors.add_to(form, error)
            return self._page(form, error)
        assert isinstance(user, EndUser)  # a token of this tenant's
        return self._verified(user)

    def _verified(self, user: EndUser) -> HttpResponse:
        self.__dict__.pop("session", None)
        if self.session is not None:
            self.steps = self.steps.with_notice("email_verified")
            return self.to("continue")
        self.steps = self.steps.only_email(user.email).with_notice("email_verified")
        return self.to("signin/password")

    def _send_again(self, request: HttpRequest) -> HttpResponse:
        form = forms.AddressForm(request.POST)
        if not form.is_valid():
            return self._page(form)
        email = form.cleaned_data["email"]
        try:
            resend_email_proof(tenant_id=self.tenant.tenant_id, email=email)
        except ApiError as error:
            return self._page(None, error)
        self.steps = self.steps.only_email(email).with_notice("mail_sent")
        return self.to("verify-email")

    def _page(self, form: forms.PageForm | None, error: ApiError | None = None, *, signed_in: str = "") -> HttpResponse:
        if signed_in:
            return self.page("other_user", _("Verify your e-mail address"), {"signed_in": signed_in}, status=403)
        by_link = form if isinstance(form, forms.VerifyLinkForm) else forms.VerifyLinkForm()
        known = {"email": self.expected_email}
        by_code = form if isinstance(form, forms.VerifyCodeForm) else forms.VerifyCodeForm(initial=known)
        if form is None:
            form = by_code
        context = {
            **self.application(),
            "by_link": by_link,
            "by_code": by_code,
            "who": self.expected_email,
            "another_mail": forms.AddressForm(auto_id="another_mail_%s"),
        }
        return self.page("verify_email", _("Verify your e-mail address"), context, form=form, error=error)
