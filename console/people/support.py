"""Pages that help an end user to sign in, and the file with all data about the user."""

from uuid import UUID

import orjson
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context, staff_at
from console.frame.forms import Reason
from console.frame.records import Text
from console.frame.tenant_pages import tenant_page
from console.people.end_user import EndUserConfirmView
from openid.account.data import DATA_NEEDS, export_user_data
from tenants.models import Tenant
from userflow.diagnosis.actions import unlock_end_user
from userflow.email.actions import mark_email_verified, send_email_proof
from userflow.passwords.actions import MINUTES, send_password_reset
from userflow.sessions.assurance import Action


class SupportView(EndUserConfirmView):
    permissions = ("endusers:read", "endusers:write")
    dangerous = False


class SendReset(SupportView):
    title = _("Send password reset")
    text = _(
        "%(email)s receives a link to set a new password. The current password stays valid until then; all sessions end "
        "when the new one is set."
    )
    submit = _("Send the mail")
    done = _("A link to set a new password is mailed to %(email)s. It is valid for %(minutes)s minutes.")
    call = staticmethod(send_password_reset)

    def names(self) -> Context:
        return {**super().names(), "minutes": MINUTES}


class ResendVerification(SupportView):
    title = _("Resend verification mail")
    text = _(
        "The address of %(email)s that waits for verification receives a new link and code; the older ones become invalid."
    )
    submit = _("Send the mail")

    def act(self, form: Form) -> Text:
        address = send_email_proof(**self.arguments())
        return _("A link and a code are mailed to %(address)s.") % {"address": address}


class MarkVerified(SupportView):
    action = Action.CHANGE_EMAIL_OF_OTHERS
    form_class = Reason
    title = _("Mark address as verified")
    text = _(
        "Make sure that %(email)s belongs to this user. As at a first verification by mail, all sessions end and factors "
        "that were added before are removed: another person may have registered the address. The password stays valid; if the "
        "user has not chosen it, send a password reset instead, which verifies the address too."
    )
    submit = _("Mark as verified")
    done = _("The address %(email)s is marked as verified.")
    call = staticmethod(mark_email_verified)


class Unlock(SupportView):
    action = Action.RESET_FACTORS
    title = _("Unlock")
    text = _(
        "The failed attempts of %(email)s are reset, at the password and at all factors. If the user has not made them, "
        "someone else may be guessing the password."
    )
    submit = _("Unlock")
    done = _("The user is unlocked.")
    call = staticmethod(unlock_end_user)


@tenant_page(*DATA_NEEDS)
def download(request: HttpRequest, tenant: Tenant, user_id: UUID) -> HttpResponse:
    """All data about an end user as a JSON file."""
    data = export_user_data(tenant_id=tenant.pk, user_id=user_id, by=staff_at(request).principal)
    response = HttpResponse(orjson.dumps(data, option=orjson.OPT_INDENT_2), content_type="application/json")
    response.headers["Content-Disposition"] = f'attachment; filename="user-{user_id}.json"'
    response.headers["Cache-Control"] = "no-store"
    return response
