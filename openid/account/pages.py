"""The account of a signed-in user: profile, address, password, factors, devices, applications, data.

Changes obey the same action table as the API. Pages that need a proof in the request send the user to the step-up first; its
proof token is kept in the sealed cookie and used once.
"""

from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from identity_platform.api.email_addresses import email_key
from identity_platform.api.errors import ApiError, NotFound
from mfa.closing.actions import close_account
from mfa.factors import TOTP, WEBAUTHN, FactorList, list_factors, remove_factor, rename_passkey
from mfa.totp.actions import regenerate_backup_codes
from mfa.webauthn.models import UNNAMED
from openid.account.applications import (
    application_to_open,
    applications_of_browsers,
    connected_applications,
    disconnect,
    names_of_applications,
)
from openid.account.devices import device_in_words
from openid.pages import errors, forms
from openid.pages.consent import further_grants, in_words
from openid.pages.enrollment import codes_page
from openid.pages.journey import SignedInPage
from openid.pages.languages import forget_language
from openid.pages.page import Context, FormPage, Page
from openid.pages.proofs import PROOF_METHODS
from userflow.accounts.principals import Principal
from userflow.accounts.realms import END_USERS
from userflow.errors import InsufficientAuthentication, ProofTokenInvalid
from userflow.ids import id_or
from userflow.passwords.actions import change_password
from userflow.profile.actions import update_profile
from userflow.sessions.actions import end_one_session, end_others, list_sessions
from userflow.sessions.ending import sign_out
from userflow.signin.caller import Caller
from userflow.signin.remembered_browsers import forget_device, remembered_devices

MOST_SESSIONS: Final = 100


def factors_of(principal: Principal) -> FactorList:
    """Return the factors of the signed-in user."""
    return list_factors(realm=END_USERS, tenant_id=principal.tenant_id, user_id=principal.id)


def shown_factor(factor: dict[str, object]) -> dict[str, object]:
    """Return a listed factor with its kind as `label` and with its `name`, in the user's language."""
    label = PROOF_METHODS[str(factor["kind"])].label
    unnamed = factor["kind"] == TOTP or factor["name"] == UNNAMED
    return {**factor, "label": label, "name": label if unnamed else factor["name"]}


class AccountPage(SignedInPage):
    """A page of the account, with the navigation."""

    section = "account"
    # The page that a step-up returns to.
    back = "security"

    def _answer(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        try:
            return super()._answer(request, **kwargs)
        except (InsufficientAuthentication, ProofTokenInvalid):
            self.journey_steps = replace(self.journey_steps, proof="")
            return self.to("step-up", next=self.return_to(**kwargs))

    def _error_page(self, error: ApiError) -> HttpResponse:
        if isinstance(error, InsufficientAuthentication | ProofTokenInvalid):
            raise error
        return super()._error_page(error)

    def return_to(self, **kwargs: object) -> str:
        """Return the page of the account that a step-up returns to."""
        return self.back

    def proof_used(self, notice: str) -> None:
        """Forget the proof, and show a message on the next page."""
        self.journey_steps = replace(self.journey_steps, proof="", notice=notice)

    def context(self) -> Context:
        with self.entered():
            application = application_to_open(self.own_session)
        return {"section": self.section, "user": self.user, "application_to_open": application}

    def account_page(self, template: str, title: str, context: Context) -> HttpResponse:
        """Return a page with the navigation of the account."""
        return self.page(f"account/{template}", title, {**self.context(), **context})


class ProfilePage(FormPage, AccountPage):
    """Name and language, and where everything else is."""

    template = "account/profile"
    title = gettext_lazy("Your profile")
    form_class = forms.ProfileForm
    focuses = False

    def form_options(self) -> dict[str, Any]:
        return {"initial": {"name": self.user.name, "language": self.user.language}}

    def submit(self, form: forms.PageForm) -> HttpResponse:
        """Store what has changed."""
        changes = {name: form.cleaned_data[name] for name in form.changed_data}
        update_profile(of=self.me, changes=changes)
        response = self.to_with("saved", "account")
        if "language" in changes:
            forget_language(self.request, response, self.tenant)
        return response

    def context(self) -> Context:
        return {
            **super().context(),
            "may_delete": self.tenant.effective["account_deletion"] == "on",
            "is_new": self.journey_steps.notice == "account_ready",
        }


class ProvenFormPage(FormPage, AccountPage):
    """A form that needs the proof of a step-up."""

    not_shown = (InsufficientAuthentication, ProofTokenInvalid)

    def get(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Show the form, after a step-up."""
        self.require_proof()
        return super().get(request)


class EmailPage(ProvenFormPage):
    """A new e-mail address."""

    back = "email"
    template = "account/email"
    title = gettext_lazy("Change your e-mail address")
    form_class = forms.NewEmailForm

    def submit(self, form: forms.PageForm) -> HttpResponse:
        """Change the address; a mail goes to the new one. The present address cancels a change that waits."""
        present, changes = self.user.email, {"email": form.cleaned_data["email"]}
        update_profile(of=self.me, changes=changes, proof=self.require_proof())
        if changes["email"] == present:
            # Nothing has used the proof up.
            self.journey_steps = self.journey_steps.with_notice("email_kept")
        else:
            self.proof_used("saved" if email_key(changes["email"]) == email_key(present) else "email_asked")
        return self.to("account")


class SecurityPage(AccountPage):
    """The ways to sign in."""

    section = "security"

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show password and factors."""
        rp_id = self.tenant.effective["webauthn_rp_id"]
        listed = factors_of(self.me)
        context = {
            "factors": [shown_factor(factor) for factor in listed["factors"]],
            "codes": listed["backup_codes_remaining"],
            "has_password": bool(self.user.password),
            "rp_id": rp_id,
        }
        return self.account_page("security", _("Sign-in and security"), context)


class ChangePasswordAddress(Page):
    """The address that password managers know (W3C, A Well-Known URL for Changing Passwords)."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the page that changes the password."""
        return self.to("account/password")


class PasswordChangePage(ProvenFormPage):
    section = "security"
    back = "password"
    template = "account/password"
    title = gettext_lazy("Change your password")
    form_class = forms.NewPasswordForm

    def form_options(self) -> dict[str, Any]:
        return {"least": self.tenant.effective["password_min_length"]}

    def submit(self, form: forms.PageForm) -> HttpResponse:
        """Change the password; every other session ends."""
        change_password(
            principal=self.me,
            proof=self.require_proof(),
            new_password=form.cleaned_data["password"],
        )
        self.proof_used("password_saved")
        return self.to("account/security")

    def add_error(self, form: forms.PageForm, error: ApiError) -> None:
        """Show what is wrong with the password at its field, which has another name in the API."""
        for text in (text for texts in error.messages.values() for text in texts):
            form.add_error("password", errors.in_language(text))
        if not error.messages:
            super().add_error(form, error)


class RemoveFactorPage(AccountPage):
    section = "security"

    def return_to(self, **kwargs: object) -> str:
        return f"remove/{kwargs['factor_id']}"

    def get(self, request: HttpRequest, factor_id: UUID) -> HttpResponse:
        """Ask, after a step-up."""
        self.require_proof()
        listed = factors_of(self.me)
        factor = next((factor for factor in listed["factors"] if factor["id"] == factor_id), None)
        if factor is None:
            raise NotFound
        codes_go = listed["backup_codes_remaining"] and (factor["kind"] == TOTP or len(listed["factors"]) == 1)
        context = {"factor": shown_factor(factor), "codes_go": codes_go}
        title = _("Remove this passkey?") if factor["kind"] == WEBAUTHN else _("Remove this second factor?")
        return self.account_page("remove", title, context)

    def post(self, request: HttpRequest, factor_id: UUID) -> HttpResponse:
        kind = remove_factor(principal=self.me, factor_id=factor_id, proof=self.require_proof())
        self.proof_used("passkey_removed" if kind == WEBAUTHN else "factor_removed")
        return self.to("account/security")


class RenamePasskeyPage(FormPage, AccountPage):
    section = "security"
    template = "account/rename"
    title = gettext_lazy("Name your passkey")
    form_class = forms.PasskeyNameForm
    # That the passkey is unknown is no error of the form.
    shown = ()

    def get(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Ask for the name."""
        passkeys = (factor for factor in factors_of(self.me)["factors"] if factor["kind"] == WEBAUTHN)
        passkey = next((factor for factor in passkeys if factor["id"] == kwargs["factor_id"]), None)
        if passkey is None:
            raise NotFound
        return self.show(forms.PasskeyNameForm(initial={"name": "" if passkey["name"] == UNNAMED else passkey["name"]}))

    def submit(self, form: forms.PageForm) -> HttpResponse:
        rename_passkey(principal=self.me, factor_id=self.kwargs["factor_id"], name=form.cleaned_data["name"])
        return self.to_with("saved", "account/security")


class BackupCodesPage(AccountPage):
    section = "security"

    back = "backup-codes"

    def get(self, request: HttpRequest) -> HttpResponse:
        """Ask, after a step-up."""
        if not self.user.mfa_methods:
            return self.to("account/security")
        self.require_proof()
        return self.account_page("new_codes", _("Create new backup codes?"), {})

    def post(self, request: HttpRequest) -> HttpResponse:
        """Create ten new codes; the old ones become invalid."""
        caller = Caller(principal=self.me, proof=self.require_proof())
        codes = regenerate_backup_codes(
            realm=END_USERS, tenant_id=self.tenant.tenant_id, email=self.user.email, caller=caller
        )
        self.journey_steps = replace(self.journey_steps, proof="")
        return codes_page(self, codes, self.user.email)


class DevicesPage(AccountPage):
    """The browsers and applications in which the user is signed in."""

    section = "devices"

    def get(self, request: HttpRequest) -> HttpResponse:
        """List the sessions, newest first. Those of connected applications belong to one of a browser."""
        sessions = list_sessions(by=self.me, page=1, limit=MOST_SESSIONS, parents=True)
        application_names = names_of_applications(sessions.rows, self.tenant)
        with self.entered():
            signed_in = applications_of_browsers(sessions.rows, self.tenant)
            remembered = [
                (browser, device_in_words(browser.user_agent)) for browser in remembered_devices(self.user.pk)
            ]
        devices = [
            {
                "session": session,
                "device": application_names.get(session.pk) or device_in_words(session.user_agent),
                "current": session.pk == self.own_session.pk,
                "applications": ", ".join(signed_in.get(session.pk, [])),
            }
            for session in sessions.rows
        ]
        return self.account_page("devices", _("Your devices"), {"devices": devices, "remembered": remembered})

    def post(self, request: HttpRequest) -> HttpResponse:
        """End one session, or all but this one, or let a browser ask for the second step again."""
        if "remembered" in request.POST:
            with self.entered():
                forget_device(user_id=self.user.pk, device_id=request.POST["remembered"])
            return self.to_with("device_forgotten", "account/devices")
        if "others" in request.POST:
            end_others(principal=self.me)
        else:
            end_one_session(by=self.me, session_id=id_or(request.POST.get("session", ""), NotFound))
        return self.to_with("device_signed_out", "account/devices")


class ApplicationsPage(AccountPage):
    """Applications that the user has connected."""

    section = "applications"

    def get(self, request: HttpRequest) -> HttpResponse:
        """List them with what they may do."""
        with self.entered():
            applications = connected_applications(self.user.pk)
        granted = [(application, {*application.scopes, *application.audiences}) for application in applications]
        # Those that have no words of the platform's come last, as they are.
        rows = [
            (application, in_words(names, application.claims), further_grants(names, self.tenant))
            for application, names in granted
        ]
        return self.account_page("applications", _("Connected applications"), {"rows": rows})

    def post(self, request: HttpRequest) -> HttpResponse:
        """Disconnect one: its consent is deleted and its sessions end."""
        client_id = id_or(request.POST.get("client", ""), NotFound)
        with self.entered():
            disconnect(self.user.pk, client_id)
        return self.to_with("disconnected", "account/applications")


class DeletePage(AccountPage):
    """Delete the own account, where the tenant allows it."""

    back = "delete"

    def get(self, request: HttpRequest) -> HttpResponse:
        """Ask, after a step-up."""
        if self.tenant.effective["account_deletion"] != "on":
            raise NotFound
        self.require_proof()
        return self.account_page("delete", _("Delete your account?"), {})

    def post(self, request: HttpRequest) -> HttpResponse:
        """Erase the user."""
        close_account(principal=self.me, proof=self.require_proof())
        return self.signed_out("account_deleted")


class SignOutPage(SignedInPage):
    """Sign out of this browser and of the applications that it has signed in."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.page("sign_out", _("Sign out?"), {"user": self.user})

    def post(self, request: HttpRequest) -> HttpResponse:
        """End the session."""
        sign_out(principal=self.me)
        return self.signed_out("signed_out")
