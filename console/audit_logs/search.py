"""The search of an audit log: what is typed, and the ids that it stands for."""

from dataclasses import dataclass
from typing import Final, Unpack

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from console.audit_logs.action_labels import CHOICES
from console.audit_logs.export import CSV, JSON_LINES
from console.frame.access import Staff
from console.frame.forms import FormOptions, Line, Moment, Pick, Tick
from console.frame.records import Text
from identity_platform.api.email_addresses import key_of_spelling
from identity_platform.api.pagination import filtered
from identity_platform.audit.models import PlatformEvent, TenantEvent
from tenants.models import Tenant
from userflow.accounts.admin_names import admins_named
from userflow.accounts.models import EndUser
from userflow.audit.actions import Filters
from userflow.ids import FORM

_TIME: Final[dict[str, Text]] = {"invalid": _("Enter a date and time, such as 2026-01-31T08:00.")}
_LONGEST: Final = 254


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads which log: the entered tenant's own, or without a tenant the platform's."""

    staff: Staff
    tenant: Tenant | None = None

    def find_user(self, text: str) -> str | None:
        """Return the id of the user with this address, username or id; None if there is no such user.

        Raises ValidationError for a malformed address and for readers who may not know who has an address.
        """
        if FORM.fullmatch(text):
            return text.lower()
        key = key_of_spelling(text)
        if "@" in text and key is None:
            raise ValidationError(_("This is not a complete e-mail address."))
        if key is not None and self.tenant is not None and (person := self._end_user(key)):
            return person
        if not self.staff.may("admins:read"):
            raise ValidationError(
                _("Searching for an admin user by name needs the permission admins:read. Enter an id instead.")
            )
        admins = filtered(admins_named(text), tenant_id=self.staff.user.tenant_id)
        admin_id = admins.values_list("pk", flat=True).first()
        return str(admin_id) if admin_id else None

    def _end_user(self, key: str) -> str | None:
        if not self.staff.may("endusers:read"):
            raise ValidationError(_("Searching by address needs the permission endusers:read. Enter an id instead."))
        person = EndUser.objects.filter(email_key=key).values_list("pk", flat=True).first()
        return str(person) if person else None

    def is_target(self, text: str) -> bool:
        """Return whether an event of the log has this target, such as the id of a key or of a server."""
        if self.tenant is not None:
            return TenantEvent.objects.filter(target_id=text).exists()
        return filtered(PlatformEvent.objects.filter(target_id=text), tenant_id=self.staff.user.tenant_id).exists()


class EventSearch(forms.Form):
    """Filters of events; an empty one matches everything but views. The page ends before the event with the id `before`."""

    person = Line(
        label=_("User"),
        required=False,
        max_length=_LONGEST,
        help_text=_("Address, username or id: by or about the user."),
    )
    action = Pick(
        label=_("Action"),
        required=False,
        choices=CHOICES,
        error_messages={"invalid_choice": _("No action has this name. Choose one from the list.")},
    )
    since = Moment(label=_("From (UTC)"), required=False, error_messages=_TIME)
    until = Moment(label=_("Until (UTC)"), required=False, error_messages=_TIME)
    views = Tick(label=_("Show views"), help_text=_("Events that only record that something was read."))
    actor = Line(label=_("Actor"), required=False, max_length=_LONGEST, help_text=_("Address, username or id."))
    target = Line(label=_("Target"), required=False, max_length=_LONGEST, help_text=_("Address, username or id."))
    before = forms.IntegerField(required=False, min_value=1, max_value=2**62, widget=forms.HiddenInput)

    # Shown when they are opened.
    further: Final = ("actor", "target")

    def __init__(self, *, reader: Reader, **options: Unpack[FormOptions]) -> None:
        super().__init__(**options)
        self.reader = reader

    def _user(self, field: str) -> str | None:
        text = str(self.cleaned_data[field])
        if not text:
            return None
        if (user := self.reader.find_user(text)) is not None:
            return user
        if field == "target" and self.reader.is_target(text):
            return text
        if "@" in text:
            raise ValidationError(_("No user has this address."))
        raise ValidationError(_("No user has this username. Enter an address, a username or an id."))

    def clean_person(self) -> str | None:
        return self._user("person")

    def clean_actor(self) -> str | None:
        return self._user("actor")

    def clean_target(self) -> str | None:
        return self._user("target")

    def filters(self) -> Filters:
        """Return the filters of a valid form."""
        values = {name: self.cleaned_data.get(name) or None for name in Filters.__slots__ if name != "views"}
        return Filters(**values, views=self.cleaned_data["views"])

    def query_parameters(self) -> dict[str, str]:
        """Return the filled filters for the path of another page."""
        return {name: str(self.data[name]) for name in self.fields if name != "before" and self.data.get(name)}

    def main_fields(self) -> list[forms.BoundField]:
        """Return the fields that are always shown."""
        return [field for field in self.visible_fields() if field.name not in self.further]

    def further_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.further]

    def further_open(self) -> bool:
        """Return whether a further field is filled."""
        return any(self.data.get(name) for name in self.further)


class PlatformSearch(EventSearch):
    """The filters of the platform's log; operators can also choose a tenant."""

    tenant = Line(label=_("Tenant"), required=False, max_length=255, help_text=_("Slug, name or id."))
    field_order = ("person", "action", "tenant", "since", "until", "views")

    def __init__(self, *, reader: Reader, **options: Unpack[FormOptions]) -> None:
        super().__init__(reader=reader, **options)
        if not self.reader.staff.is_operator:
            del self.fields["tenant"]

    def clean_tenant(self) -> Tenant | None:
        """Return the tenant with this slug, name or id."""
        text = str(self.cleaned_data["tenant"])
        if not text:
            return None
        condition = Q(pk=text) if FORM.fullmatch(text) else Q(slug=text.lower()) | Q(name=text)
        tenants = list(Tenant.objects.filter(condition)[:3])
        tenants = [tenant for tenant in tenants if tenant.slug == text.lower()] or tenants
        if not tenants:
            raise ValidationError(_("No tenant has this slug, name or id."))
        if len(tenants) > 1:
            raise ValidationError(_("Several tenants have this name. Enter the slug."))
        return tenants[0]


class FileForm(forms.Form):
    """The format of an export."""

    form = Pick(
        label=_("File"),
        choices=[
            (JSON_LINES, _("JSON lines, one event a line")),
            (CSV, _("CSV for spreadsheets")),
        ],
    )


class EventExport(FileForm, EventSearch):
    """The filters of an export of a tenant's log."""


class PlatformExport(FileForm, PlatformSearch):
    """The filters of an export of the platform's log."""
