from typing import Final, Unpack

from django import forms
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context
from console.frame.confirm import TypedName
from console.frame.forms import Address, FormOptions, Line, Lines, Number, Pick, Tick
from console.frame.records import Text
from identity_platform.api.fields import Boolean, Choice, Integer, Items
from tenants.models import DatabaseServer, Tenant
from tenants.settings import SETTINGS, Setting
from userflow.accounts.models import LONGEST_NAME
from userflow.admins.actions import is_taken

_NO_CHOICE: Final = ("", _("Platform default"))


class DeletionForm(TypedName):
    without_backup = Tick(label=_("Without a final backup: the tenant cannot be restored"))


class _Flag(Pick):
    """Yes, no, or the platform's default."""

    def prepare_value(self, value: object) -> object:
        return str(value).lower() if isinstance(value, bool) else value

    def clean(self, value: object) -> bool | None:
        return {"true": True, "false": False}.get(super().clean(value))


def _field_of(setting: Setting) -> forms.Field:
    """Return the form field for a setting. `tenants.settings` alone validates the value."""
    field, label, help_text = setting.field, str(setting.label), str(setting.meaning)
    if isinstance(field, Choice):
        choices = [_NO_CHOICE, *((choice, choice) for choice in field.choices)]
        return Pick(label=label, help_text=help_text, required=False, choices=choices)
    if isinstance(field, Boolean):
        choices = [_NO_CHOICE, ("true", _("yes")), ("false", _("no"))]
        return _Flag(label=label, help_text=help_text, required=False, choices=choices)
    kind = Number if isinstance(field, Integer) else Lines if isinstance(field, Items) else Line
    return kind(label=label, help_text=help_text, required=False)


class SettingsForm(forms.Form):
    """Name, slug and settings of a tenant. An empty setting is the platform's default."""

    name = Line(max_length=255, label=_("Name"))
    slug = Line(
        max_length=50,
        label=_("Slug"),
        help_text=_("a-z, 0-9 and dashes. Commands and addresses name the tenant by it."),
    )

    def __init__(self, **options: Unpack[FormOptions]) -> None:
        super().__init__(**options)
        self.fields |= {name: _field_of(setting) for name, setting in SETTINGS.items()}

    def clean(self) -> Context:
        """Return None for a setting that is reset to the default."""
        return {name: None if value in ("", []) else value for name, value in self.cleaned_data.items()}


def _servers() -> list[tuple[str, Text]]:
    servers = DatabaseServer.objects.filter(accepts_tenants=True).order_by("name").values_list("name", "host")
    return [("", _("Automatic (most free capacity)")), *((name, f"{name} ({host})") for name, host in servers)]


class ProvisionForm(forms.Form):
    name = Line(max_length=255, label=_("Name"), help_text=_("The display name of the customer."))
    slug = forms.RegexField(
        r"\A[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?\Z",
        label=_("Slug"),
        help_text=_("1 to 50 of a-z, 0-9 and dashes, no dash at either end. Commands name the tenant by it."),
        error_messages={
            "invalid": _("Use 1 to 50 characters: a-z, 0-9 and dashes, not starting or ending with a dash.")
        },
        widget=Line.widget,
    )
    server = Pick(
        required=False,
        label=_("Database server"),
        help_text=_("The server of its database."),
        choices=_servers,
    )
    username = Line(
        max_length=LONGEST_NAME, label=_("First admin: username"), widget=Line.widget({"autocomplete": "off"})
    )
    email = forms.EmailField(
        max_length=254,
        label=_("First admin: e-mail address"),
        help_text=_("A link to set a password is sent there once the tenant is active."),
        widget=Address.widget({"autocomplete": "off"}),
    )

    def clean_slug(self) -> str:
        """Reject what the job would reject."""
        slug = str(self.cleaned_data["slug"])
        taken = Tenant.objects.filter(slug__iexact=slug).exclude(database__status="provisioning")
        if taken.exists():
            raise forms.ValidationError(_("Another tenant has this slug. Choose another one."))
        return slug

    def clean(self) -> Context:
        """Reject an admin whose name is taken. The job checks it again."""
        data = dict(super().clean() or {})
        username, email = data.get("username", ""), data.get("email", "")
        if username and email and is_taken(username=username, email=email):
            self.add_error("username", _("Another admin user has this username or e-mail address."))
        return data
