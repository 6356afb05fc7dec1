"""The page that issues an enrollment pass to an admin user or an end user."""

from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.frame.access import staff_at
from console.frame.confirm import confirmed
from console.frame.forms import Pick, Reason
from console.frame.records import moment, secret_page
from mfa.passes import EnrollmentPass, issue_enrollment_pass
from tenants.models import Tenant
from userflow.accounts.realms import Realm
from userflow.sessions.assurance import Action

WAYS: Final = (
    ("mail", gettext_lazy("Mail it to the user")),
    ("show", gettext_lazy("Show it to me once")),
)


class PassForm(Reason):
    """Why the pass is issued, and who receives it."""

    deliver = Pick(
        label=gettext_lazy("Delivery"),
        choices=WAYS,
        initial=WAYS[0][0],
        help_text=gettext_lazy(
            "If it is shown to you, give it to the user in person. The user is told by mail either way."
        ),
    )


def issue_pass(
    request: HttpRequest, *, realm: Realm, user_id: UUID, email: str, back: str, tenant: Tenant | None = None
) -> HttpResponse:
    """Ask for the reason, then issue the pass. `tenant` is the one of an end user. The caller checks the permission."""
    issued: list[EnrollmentPass] = []

    def act(typed: dict[str, Any]) -> str:
        issued.append(
            issue_enrollment_pass(
                realm=realm,
                tenant_id=tenant.pk if tenant else None,
                user_id=user_id,
                reason=typed["reason"],
                by=staff_at(request).principal,
                deliver=typed["deliver"],
            )
        )
        if issued[0].token is None:
            return _("The enrollment pass is mailed to %(email)s.") % {"email": email}
        return _("The enrollment pass is shown on this page only.")

    def shown(_request: HttpRequest) -> HttpResponse:
        token = issued[0].token
        if token is None:
            return HttpResponseRedirect(back)
        text = _("Give this pass to %(email)s. It adds one second factor and expires at %(moment)s.") % {
            "email": email,
            "moment": moment(issued[0].expires_at),
        }
        return secret_page(
            request, title=_("Enrollment pass for %(email)s") % {"email": email}, text=text, secret=token, back=back
        )

    return confirmed(
        request,
        title=_("Issue an enrollment pass"),
        text=_(
            "%(email)s has no second factor. The pass lets this user add one within an hour. Check first that it is the "
            "user who asks: anyone who has the pass and the password can sign in as this user."
        )
        % {"email": email},
        back=back,
        action=Action.ISSUE_ENROLLMENT_PASS,
        act=act,
        form_class=PassForm,
        submit=_("Issue the pass"),
        dangerous=False,
        tenant=tenant,
        shown=shown,
    )
