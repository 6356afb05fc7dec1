"""Changes to one end user: each page asks, then calls the action that the API calls too."""

from django.forms import Form
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.frame.access import Arguments, Context
from console.frame.confirm import CreateView, EmailEditView, TenantConfirmView, TypedDeleteView
from console.frame.records import Text
from console.people import forms
from console.people.end_user import EndUserConfirmView
from console.signin.lost_factors import IssuePassView, ResetFactorsView
from userflow.accounts.models import EndUser
from userflow.accounts.permissions_catalogue import FACTORS
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.endusers import actions
from userflow.errors import UnknownSession
from userflow.sessions import actions as sessions
from userflow.sessions.assurance import Action


class Register(CreateView[EndUser], TenantConfirmView):
    permissions = ("endusers:read", "endusers:write")
    page = "admin:person"
    list_page = EndUserConfirmView.list_page
    title = _("Add end user")
    text = _("The user can sign in at once with the password that you choose here.")
    submit = _("Register")
    form_class = forms.RegisterForm

    def get_form_kwargs(self) -> Context:
        return {**super().get_form_kwargs(), "tenant_id": self.tenant.pk}

    def act(self, form: Form) -> Text:
        # The form adds the tenant.
        self.row, _ticket = actions.register_end_user(**form.cleaned_data, by=self.staff.principal)
        return _("%(email)s is registered.") % {"email": self.row.email}


class Edit(EmailEditView[EndUser], EndUserConfirmView):
    permissions = ("endusers:read", "endusers:write")
    action = Action.CHANGE_EMAIL_OF_OTHERS
    title = _("Edit end user")
    text = _("The user signs in with the e-mail address. The old address is notified of a change.")
    form_class = forms.EndUserForm
    done = _("The end user is saved.")
    call = staticmethod(actions.update_end_user)


class SetActive(EndUserConfirmView):
    """Deactivate an active end user, or activate a deactivated one.

    The form carries what was asked for, so that a change made by someone else meanwhile does not turn it around.
    """

    permissions = ("endusers:read", "endusers:write")

    def load(self) -> None:
        super().load()
        self.activate = self.request.POST.get("active", "" if self.row.active else "yes") == "yes"
        self.dangerous = not self.activate
        if self.activate:
            self.title, self.text = _("Activate"), _("%(email)s can sign in again.")
        else:
            self.title = _("Deactivate")
            self.text = _("%(email)s is signed out everywhere and cannot sign in any more. All data is kept.")
            self.action = Action.END_SESSIONS_OF_OTHERS

    def hidden_fields(self) -> dict[str, str]:
        return {"active": "yes" if self.activate else "no"}

    def act(self, form: Form) -> Text:
        changed = actions.set_end_user_active(**self.arguments(), active=self.activate)
        return _("The user is active.") if changed.active else _("The user is deactivated.")


class Erase(TypedDeleteView[EndUser], EndUserConfirmView):
    permissions = ("endusers:read", "endusers:delete")
    action = Action.END_SESSIONS_OF_OTHERS
    call = staticmethod(actions.erase_end_user)
    title = _("Erase")
    text = _("%(email)s is removed with all factors, sessions, groups and roles. This cannot be undone.")
    submit = _("Erase permanently")
    done = _("The user and all data of the user are erased.")


class ResetFactors(ResetFactorsView[EndUser], EndUserConfirmView):
    permissions = ("endusers:read", FACTORS)
    realm = END_USERS
    title = _("Reset second factors")
    text = _(
        "All passkeys, authenticator apps, phones and backup codes of %(email)s are removed, and all sessions end. "
        "Make sure that it is the user who asks. The user receives an enrollment pass by mail, to add a new factor "
        "within an hour."
    )
    submit = _("Remove all factors")
    done = _("All second factors are removed. The user receives an enrollment pass by mail.")


class IssuePass(IssuePassView[EndUser], EndUserConfirmView):
    """Let an end user without a second factor add one."""

    permissions = ("endusers:read", FACTORS)
    realm = END_USERS


class EndSessions(EndUserConfirmView):
    permissions = ("endusers:read", "sessions:write")
    action = Action.END_SESSIONS_OF_OTHERS
    title = _("End all sessions")
    text = _("%(email)s is signed out everywhere and can sign in again.")
    dangerous = False

    def act(self, form: Form) -> Text:
        ended = sessions.end_all_sessions(**self.arguments())
        return ngettext("%(number)s session is ended.", "%(number)s sessions are ended.", ended) % {"number": ended}


class EndSession(EndUserConfirmView):
    permissions = ("endusers:read", "sessions:write")
    action = Action.END_SESSIONS_OF_OTHERS
    title = _("End this session")
    text = _("%(email)s is signed out there from the next request on.")
    dangerous = False
    call = staticmethod(sessions.end_one_session)
    done = _("The session is ended.")

    def load(self) -> None:
        super().load()
        if not EndUserSession.objects.filter(pk=self.kwargs["session_id"], user=self.row).exists():
            raise UnknownSession

    def arguments(self) -> Arguments:
        return {**super().arguments(), "session_id": self.kwargs["session_id"]}
