"""Forms about tenants."""

from typing import Any, Final

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.widgets import (
    UnfoldAdminEmailInputWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from console.frame.confirm import TypedName
from console.frame.forms import Fields
from identity_platform.api.fields import Boolean, Choice, Integer, Items
from tenants.models import DatabaseServer, Tenant
from tenants.settings import SETTINGS, Setting
from userflow.accounts.models import LONGEST_NAME
from userflow.admins.actions import is_taken

_NO_CHOICE: Final = ("", gettext_lazy("Platform default"))


def _text(**options: Any) -> forms.Field:
    return forms.CharField(required=False, widget=UnfoldAdminTextInputWidget(), **options)


def _whole(**options: Any) -> forms.Field:
    return forms.IntegerField(required=False, widget=UnfoldAdminIntegerFieldWidget(), **options)


def _choice(*choices: str, **options: Any) -> forms.Field:
    found = [_NO_CHOICE, *((choice, choice) for choice in choices)]
    return forms.ChoiceField(required=False, choices=found, widget=UnfoldAdminSelectWidget(), **options)


class DeletionForm(TypedName):
    """The name of the tenant, and whether to skip the final backup."""

    without_backup = forms.BooleanField(
        required=False,
        label=gettext_lazy("Without a final backup: the tenant cannot be restored"),
        widget=UnfoldBooleanWidget(),
    )


class _Lines(forms.CharField):
    """A list with one entry per line; an empty field is None."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, widget=UnfoldAdminTextareaWidget({"rows": 3}), **options)

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def clean(self, value: Any) -> Any:
        lines = [line.strip() for line in str(super().clean(value)).splitlines() if line.strip()]
        return lines or None


class _Flag(forms.ChoiceField):
    """Yes, no, or the platform's default."""

    def __init__(self, **options: Any) -> None:
        choices = [_NO_CHOICE, ("true", gettext_lazy("yes")), ("false", gettext_lazy("no"))]
        super().__init__(required=False, choices=choices, widget=UnfoldAdminSelectWidget(), **options)

    def prepare_value(self, value: Any) -> Any:
        return str(value).lower() if isinstance(value, bool) else value

    def clean(self, value: Any) -> Any:
        return {"true": True, "false": False}.get(super().clean(value))


def _field_of(setting: Setting) -> forms.Field:
    """Return the form field for a setting. `tenants.settings` alone validates the value."""
    field = setting.field
    options = {"label": setting.label, "help_text": setting.meaning}
    if isinstance(field, Choice):
        return _choice(*field.choices, **options)
    if isinstance(field, Boolean):
        return _Flag(**options)
    if isinstance(field, Integer):
        return _whole(**options)
    return _Lines(**options) if isinstance(field, Items) else _text(**options)


class SettingsForm(forms.Form):
    """Name, slug and settings of a tenant. An empty setting is the platform's default."""

    name = forms.CharField(max_length=255, label=gettext_lazy("Name"), widget=UnfoldAdminTextInputWidget())
    slug = forms.CharField(
        max_length=50,
        label=gettext_lazy("Slug"),
        help_text=gettext_lazy("a-z, 0-9 and dashes. Commands and addresses name the tenant by it."),
        widget=UnfoldAdminTextInputWidget(),
    )

    def __init__(self, *args: Any, tenant: Tenant, **options: Any) -> None:
        super().__init__(*args, **options)
        self.tenant = tenant
        for name, setting in SETTINGS.items():
            self.fields[name] = _field_of(setting)

    def changes(self, data: Fields) -> Fields:
        """Return the changes for the action; None resets a setting to the default."""
        # Settings of a newer release are not shown and stay.
        stated = {name: data[name] if data[name] != "" else None for name in SETTINGS}
        changed = {name: value for name, value in stated.items() if value != self.tenant.settings.get(name)}
        found = {name: data[name] for name in ("name", "slug") if data[name] != getattr(self.tenant, name)}
        return found | ({"settings": changed} if changed else {})


class ProvisionForm(forms.Form):
    """A new tenant and its first admin."""

    name = forms.CharField(
        max_length=255,
        label=gettext_lazy("Name"),
        help_text=gettext_lazy("The display name of the customer."),
        widget=UnfoldAdminTextInputWidget(),
    )
    slug = forms.RegexField(
        r"\A[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?\Z",
        label=gettext_lazy("Slug"),
        help_text=gettext_lazy(
            "1 to 50 of a-z, 0-9 and dashes, no dash at either end. Commands name the tenant by it."
        ),
        error_messages={
            "invalid": gettext_lazy("Use 1 to 50 characters: a-z, 0-9 and dashes, not starting or ending with a dash.")
        },
        widget=UnfoldAdminTextInputWidget(),
    )
    server = forms.ChoiceField(
        required=False,
        label=gettext_lazy("Database server"),
        help_text=gettext_lazy("The server of its database."),
        widget=UnfoldAdminSelectWidget(),
    )
    username = forms.CharField(
        max_length=LONGEST_NAME,
        label=gettext_lazy("First admin: username"),
        widget=UnfoldAdminTextInputWidget({"autocomplete": "off"}),
    )
    email = forms.EmailField(
        max_length=254,
        label=gettext_lazy("First admin: e-mail address"),
        help_text=gettext_lazy("A link to set a password goes there once the tenant is active."),
        widget=UnfoldAdminEmailInputWidget({"autocomplete": "off"}),
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        servers = DatabaseServer.objects.filter(accepts_tenants=True).order_by("name").values_list("name", "host")
        server = self.fields["server"]
        assert isinstance(server, forms.ChoiceField)
        server.choices = [
            ("", _("The one with the most room")),
            *((name, f"{name} ({host})") for name, host in servers),
        ]

    def clean_slug(self) -> str:
        """Refuse what the job would reject, while there is a form to say it at."""
        slug = str(self.cleaned_data["slug"])
        taken = Tenant.objects.filter(slug__iexact=slug).exclude(database__status="provisioning")
        if taken.exists():
            raise forms.ValidationError(_("Another tenant has this slug: choose another one."))
        return slug

    def clean(self) -> Fields:
        """Refuse an admin who is there already; the job looks again, with the last word."""
        data = dict(super().clean() or {})
        username, email = data.get("username", ""), data.get("email", "")
        if username and email and is_taken(username=username, email=email):
            self.add_error("username", _("Another admin user has this username or e-mail address."))
        return data
