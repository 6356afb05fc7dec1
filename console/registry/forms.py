"""What is typed in about services and credentials."""

from typing import Any, ClassVar

from django import forms
from django.utils.translation import gettext_lazy as _
from rest_framework.serializers import Serializer
from unfold.widgets import UnfoldAdminTextareaWidget

from console.frame.forms import ApiForm, Line, Members, Moment, Paragraph, Pick, Tick, as_sent
from identity_platform.api.errors import MalformedBody
from identity_platform.api.parsers import json_object
from registry.models import ACTIVE, API_KEY, CREDENTIAL_TYPES, STATUSES
from registry.serializers import ServiceCredentialChanges, ServiceCredentialIn, ServiceIn

_STATUS_NAMES = {"active": _("active"), "inactive": _("inactive")}


class ServiceForm(ApiForm):
    """A service's record."""

    serializer = ServiceIn

    name = Line(label=_("Name"), help_text=_("Unique among the services of this tenant."))
    type = Line(label=_("Type"), help_text=_("A category of your own choosing, such as payment."))
    base_url = Line(label=_("Base URL"), help_text=_("Where the service is called: https://api.example.com/v1"))
    api_version = Line(label=_("API version"), required=False)
    status = Pick(label=_("Status"), choices=[(s, _STATUS_NAMES[s]) for s in STATUSES], initial=ACTIVE)
    description = Paragraph(label=_("Description"), required=False)
    metadata = Members(label=_("Metadata"), required=False, help_text=_("A JSON object; applications read it."))


class SecretArea(UnfoldAdminTextareaWidget):  # type: ignore[misc]  # unfold has no types
    """Takes a secret and never shows it again: a form that comes back because of another field has it empty."""

    def format_value(self, value: Any) -> str:
        """Nothing."""
        return ""


class SecretForm(ApiForm):
    """A new secret."""

    serializer: ClassVar[type[Serializer[Any]]] = ServiceCredentialChanges

    secret = Paragraph(
        label=_("Secret"),
        strip=False,
        widget=SecretArea({"autocomplete": "off", "spellcheck": "false", "rows": 4}),
        help_text=_("It is sealed, and this form does not show it again. If the form comes back, type it once more."),
    )
    is_object = Tick(label=_("The secret is a JSON object, such as a user name with a password"))

    def members(self, typed: dict[str, Any]) -> dict[str, Any]:
        """The secret as its service hands it out."""
        return {"secret": self.secret_of(typed)}

    def secret_of(self, typed: dict[str, Any]) -> Any:
        """A string, or the object that was typed; never with the text in a message."""
        if not typed["is_object"]:
            return typed["secret"]
        try:
            return json_object(typed["secret"].encode("utf-8", "surrogatepass"))
        except MalformedBody:
            # A list is what the serializer rejects in its own words.
            return []


class CredentialForm(SecretForm):
    """A credential to be bound to a service."""

    serializer = ServiceCredentialIn
    field_order = ("name", "type", "secret", "is_object", "expires_at")

    name = Line(label=_("Name"), help_text=_("Unique among the credentials of this service, such as production."))
    type = Pick(label=_("Type"), choices=[(t, t) for t in CREDENTIAL_TYPES], initial=API_KEY)
    expires_at = Moment(label=_("Expires (UTC)"), required=False, help_text=_("Left empty it does not expire."))

    def members(self, typed: dict[str, Any]) -> dict[str, Any]:
        """The body of the API's POST."""
        return {
            "name": typed["name"],
            "type": typed["type"],
            "secret": self.secret_of(typed),
            "expires_at": as_sent(typed["expires_at"]),
        }


class ExpiryForm(forms.Form):
    """Until when a credential is handed out."""

    expires_at = Moment(
        label=_("Expires (UTC)"), required=False, help_text=_("Left empty it does not expire; a past time ends it now.")
    )
