from typing import ClassVar

from django import forms
from django.utils.translation import gettext_lazy as _
from rest_framework.serializers import Serializer
from unfold.widgets import UnfoldAdminTextareaWidget

from console.frame.access import Context
from console.frame.forms import ApiForm, JsonObject, Line, Moment, Paragraph, Pick, Tick
from identity_platform.api.errors import MalformedBody
from identity_platform.api.parsers import json_object
from registry.models import ACTIVE, API_KEY, CREDENTIAL_TYPES, STATUSES
from registry.serializers import ServiceCredentialChanges, ServiceCredentialIn, ServiceIn

_STATUS_NAMES = {"active": _("active"), "inactive": _("inactive")}


class ServiceForm(ApiForm):
    serializer = ServiceIn

    name = Line(label=_("Name"), help_text=_("Unique among the services of this tenant."))
    type = Line(label=_("Type"), help_text=_("A category of your choice, such as payment."))
    base_url = Line(label=_("Base URL"), help_text=_("For example https://api.example.com/v1"))
    api_version = Line(label=_("API version"), required=False)
    status = Pick(label=_("State"), choices=[(s, _STATUS_NAMES[s]) for s in STATUSES], initial=ACTIVE)
    description = Paragraph(label=_("Description"), required=False)
    metadata = JsonObject(label=_("Metadata"), required=False, help_text=_("A JSON object for your applications."))


class SecretArea(UnfoldAdminTextareaWidget):  # type: ignore[misc]  # unfold has no types
    """A field for a secret that is never rendered: it is empty when the form is shown again after an error."""

    def format_value(self, value: object) -> str:
        return ""


class SecretForm(ApiForm):
    serializer: ClassVar[type[Serializer[object]]] = ServiceCredentialChanges

    secret = Paragraph(
        label=_("Secret"),
        strip=False,
        widget=SecretArea({"autocomplete": "off", "spellcheck": "false", "rows": 4}),
        help_text=_("It is encrypted and not shown again in this form. After an error, enter it again."),
    )
    is_object = Tick(label=_("The secret is a JSON object, such as a user name with a password"))

    def body(self) -> Context:
        """Return the secret as applications receive it. Error messages never contain the text."""
        secret = self.cleaned_data["secret"]
        if not self.cleaned_data["is_object"]:
            return {"secret": secret}
        try:
            return {"secret": json_object(secret.encode("utf-8", "surrogatepass"))}
        except MalformedBody:
            # A list is what the serializer rejects in its own words.
            return {"secret": []}


class CredentialForm(SecretForm):
    serializer = ServiceCredentialIn
    field_order = ("name", "type", "secret", "is_object", "expires_at")

    name = Line(label=_("Name"), help_text=_("Unique among the credentials of this service, such as production."))
    type = Pick(label=_("Type"), choices=[(t, t) for t in CREDENTIAL_TYPES], initial=API_KEY)
    expires_at = Moment(label=_("Expires (UTC)"), required=False, help_text=_("Leave empty for no expiry."))

    def body(self) -> Context:
        fields = self.cleaned_data
        expires_at = fields["expires_at"].isoformat() if fields["expires_at"] else None
        return {**super().body(), "name": fields["name"], "type": fields["type"], "expires_at": expires_at}


class ExpiryForm(forms.Form):
    expires_at = Moment(
        label=_("Expires (UTC)"), required=False, help_text=_("Leave empty for no expiry. A past time expires it now.")
    )
