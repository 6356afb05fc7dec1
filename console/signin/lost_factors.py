"""Pages for users who have lost their factors: remove these, and issue an enrollment pass."""

from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeVar

from django.forms import Form
from django.http import HttpResponse
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context
from console.frame.confirm import RowView
from console.frame.forms import Pick, Reason
from console.frame.records import moment, secret_page
from identity_platform.api.views import Arguments
from mfa.factors import reset_factors
from mfa.passes import EnrollmentPass, issue_enrollment_pass
from userflow.accounts.models import AdminUser, EndUser
from userflow.accounts.realms import Realm
from userflow.sessions.assurance import Action

User = TypeVar("User", AdminUser, EndUser)
DELIVERY: Final = (("mail", _("Mail it to the user")), ("show", _("Show it to me once")))


class PassForm(Reason):
    deliver = Pick(
        label=_("Delivery"),
        choices=DELIVERY,
        initial=DELIVERY[0][0],
        help_text=_("If it is shown to you, give it to the user in person. The user is notified by mail either way."),
    )


class ResetFactorsView(RowView[User]):
    action = Action.RESET_FACTORS
    call: ClassVar[Callable[..., Any]] = staticmethod(reset_factors)
    form_class: type[Form] = Reason
    realm: ClassVar[Realm]

    def arguments(self) -> Arguments:
        return {"tenant_id": None, **super().arguments(), "realm": self.realm}


class IssuePassView(ResetFactorsView[User]):
    action = Action.ISSUE_ENROLLMENT_PASS
    call = staticmethod(issue_enrollment_pass)
    title = _("Issue an enrollment pass")
    text = _(
        "%(email)s has no second factor. The pass lets this user add one within an hour. Check first that it is the "
        "user who asks: anyone who has the pass and the password can sign in as this user."
    )
    submit = _("Issue the pass")
    dangerous = False
    form_class = PassForm

    issued: EnrollmentPass

    def names(self) -> Context:
        return {"email": self.row.email}

    def keep(self, result: EnrollmentPass) -> None:
        self.issued = result
        mailed, shown = (
            _("The enrollment pass is mailed to %(email)s."),
            _("The enrollment pass is shown on this page only."),
        )
        self.done = mailed if result.token is None else shown

    def respond(self) -> HttpResponse:
        token, email = self.issued.token, self.row.email
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
