from collections.abc import Mapping, Sequence
from typing import Unpack

from django import forms
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context
from console.frame.confirm import TypedName
from console.frame.forms import Address, FormOptions, Line, Lines, Number, Paragraph, Pick, Tick, set_choices
from console.frame.records import Text
from console.tenants.job_kinds import DRY_RUN, FOR_REAL, OFFLINE, ONLINE
from console.tenants.labels import setting_label
from identity_platform.api.fields import Boolean, Choice, Integer, Items
from tenants.lifecycle.slugs import propose_slug
from tenants.models import DatabaseServer, Tenant
from tenants.settings.declarations import SETTINGS, Setting
from tenants.settings.setting_fields import Certificates
from userflow.accounts.models import LONGEST_NAME
from userflow.admins.actions import is_taken


class DeletionForm(TypedName):
    without_backup = Tick(label=_("Without a final backup: the tenant cannot be restored"))


class MoveForm(TypedName):
    """Where to move a tenant and how. A dry run is offered first."""

    server = Pick(label=_("Database server"))
    mode = Pick(
        label=_("Mode"),
        choices=[
            (DRY_RUN, _("Dry run: only say how the tenant would be moved")),
            (ONLINE, _("Move, online if the servers allow it")),
            (OFFLINE, _("Move by dump and restore: read-only during the whole move")),
        ],
    )
    field_order = ("server", "mode", "typed")

    def __init__(
        self, *, choices: Sequence[tuple[str, str]], confirmation_text: str, **options: Unpack[FormOptions]
    ) -> None:
        super().__init__(confirmation_text=confirmation_text, **options)
        set_choices(self, "server", choices)


class RestoreForm(TypedName):
    """Which backup to restore. A dry run is offered first."""

    file = Pick(label=_("Backup"), help_text=_("The files in the backup folder of this server, newest first."))
    mode = Pick(
        label=_("Mode"),
        choices=[
            (DRY_RUN, _("Dry run: restore into a copy, compare it and drop it")),
            (FOR_REAL, _("Restore: all changes since the backup are lost")),
        ],
    )
    field_order = ("file", "mode", "typed")

    def __init__(
        self, *, choices: Sequence[tuple[str, str]], confirmation_text: str, **options: Unpack[FormOptions]
    ) -> None:
        super().__init__(confirmation_text=confirmation_text, **options)
        set_choices(self, "file", choices)


class _Flag(Pick):
    """Yes, no, or the platform's default."""

    def prepare_value(self, value: object) -> object:
        return str(value).lower() if isinstance(value, bool) else value

    def clean(self, value: object) -> bool | None:
        return {"true": True, "false": False}.get(super().clean(value))


def _field_of(setting: Setting, default: str) -> forms.Field:
    """Return the form field for a setting. `tenants.settings` alone validates the value."""
    field, label, meaning = setting.field, str(setting.label), str(setting.meaning)
    unset = _("Default: %(value)s") % {"value": default}
    if isinstance(field, Choice):
        choices = [("", unset), *((choice, choice) for choice in field.choices)]
        return Pick(label=label, help_text=meaning, required=False, choices=choices)
    if isinstance(field, Boolean):
        choices = [("", unset), ("true", _("yes")), ("false", _("no"))]
        return _Flag(label=label, help_text=meaning, required=False, choices=choices)
    if isinstance(field, Certificates):
        return Paragraph(label=label, help_text=f"{meaning} {unset}", required=False)
    kind = Number if isinstance(field, Integer) else Lines if isinstance(field, Items) else Line
    return kind(label=label, help_text=f"{meaning} {unset}", required=False)


class SlugForm(TypedName):
    slug = Line(
        max_length=50,
        label=_("New slug"),
        help_text=_("a-z, 0-9 and dashes. Commands and addresses name the tenant by it."),
    )
    field_order = ("slug", "typed")


class SettingsForm(forms.Form):
    """Name and settings of a tenant. An empty setting is the default. The slug has a page of its own.

    For an admin of the tenant it has only the settings that admins can change.
    """

    name = Line(max_length=255, label=_("Name"))

    def __init__(self, *, by_operator: bool, defaults: Mapping[str, object], **options: Unpack[FormOptions]) -> None:
        super().__init__(**options)
        if not by_operator:
            self.fields.clear()
        self.fields |= {
            name: _field_of(setting, setting_label(defaults[name]))
            for name, setting in SETTINGS.items()
            if by_operator or not setting.operators_only
        }

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
        required=False,
        help_text=_(
            "1 to 50 of a-z, 0-9 and dashes, no dash at either end. Commands name the tenant by it. Leave it empty to take "
            "one made of the name."
        ),
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
    email = Address(
        label=_("First admin: e-mail address"),
        help_text=_("A link to set a password is sent there once the tenant is active."),
        widget=Address.widget({"autocomplete": "off"}),
    )

    def clean_slug(self) -> str:
        """Reject what the job would reject."""
        slug = str(self.cleaned_data["slug"]) or propose_slug(str(self.cleaned_data.get("name", "")))
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
