"""The page that issues an enrollment pass to an admin user or an end user."""

from typing import ClassVar, Final

from django.forms import Form
from django.http import HttpResponse
from django.utils.translation import gettext_lazy as _

from console.frame.confirm import ConfirmView
from console.frame.forms import Pick, Reason
from console.frame.records import Text, moment, secret_page
from mfa.passes import EnrollmentPass, issue_enrollment_pass
from userflow.accounts.models import AdminUser, EndUser
from userflow.accounts.realms import Realm
from userflow.sessions.assurance import Action

DELIVERY: Final = (
    ("mail", _("Mail it to the user")),
    ("show", _("Show it to me once")),
)


class PassForm(Reason):
    """Why the pass is issued, and who receives it."""

    deliver = Pick(
        label=_("Delivery"),
        choices=DELIVERY,
        initial=DELIVERY[0][0],
        help_text=_("If it is shown to you, give it to the user in person. The user is notified by mail either way."),
    )


class IssuePassView(ConfirmView):
    """Ask for the reason, then issue the pass."""

    action = Action.ISSUE_ENROLLMENT_PASS
    title = _("Issue an enrollment pass")
    text = _(
        "%(email)s has no second factor. The pass lets this user add one within an hour. Check first that it is the "
        "user who asks: anyone who has the pass and the password can sign in as this user."
    )
    submit = _("Issue the pass")
    dangerous = False
    form_class = PassForm
    realm: ClassVar[Realm]

    issued: EnrollmentPass

    def recipient(self) -> AdminUser | EndUser:
        """Return the user who gets the pass."""
        raise NotImplementedError

    def act(self, form: Form) -> Text:
        self.issued = issue_enrollment_pass(
            realm=self.realm,
            tenant_id=self.tenant.pk if self.tenant else None,
            user_id=self.recipient().pk,
            reason=form.cleaned_data["reason"],
            by=self.staff.principal,
            deliver=form.cleaned_data["deliver"],
        )
        if self.issued.token is None:
            return _("The enrollment pass is mailed to %(email)s.") % {"email": self.recipient().email}
        return _("The enrollment pass is shown on this page only.")

    def respond(self) -> HttpResponse:
        token, email = self.issued.token, self.recipient().email
        if token is None:
            return super().respond()
        text = _("Give this pass to %(email)s. It adds one second factor and expires at %(moment)s.")
        return secret_page(
            self.request,
            title=_("Enrollment pass for %(email)s") % {"email": email},
            text=text % {"email": email, "moment": moment(self.issued.expires_at)},
            secret=token,
            back=self.get_back_url(),
        )
