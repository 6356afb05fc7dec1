"""Forms of directories: the connection by kind, the schedule, and what a run may do."""

from typing import ClassVar

from django import forms
from django.utils.translation import gettext_lazy as _
from rest_framework.serializers import Serializer

from console.frame import forms as fields
from console.frame.access import Context
from console.frame.forms import ApiForm
from userflow.directory.ldap import LDAPS, STARTTLS
from userflow.directory.models import ACTIVE_DIRECTORY, ENTRA_ID
from userflow.directory.serializers import DirectoryChanges, DirectoryIn

# Fields that may be empty. Of all others an empty one is not sent, and the default applies.
_MAY_BE_EMPTY = ("ca_certificate", "user_filter")


class ScheduleForm(ApiForm):
    serializer: ClassVar[type[Serializer[object]]] = DirectoryChanges

    name = fields.Line(label=_("Name"))
    enabled = fields.Tick(label=_("Enabled"))
    sync_every_minutes = fields.Number(
        label=_("Interval (minutes)"), required=False, help_text=_("Leave empty to run only on request.")
    )
    max_deactivation_percent = fields.Number(
        label=_("Deactivation limit (percent)"),
        help_text=_("A run that would deactivate more users is rejected."),
    )


class SyncForm(forms.Form):
    full = fields.Tick(label=_("Full run: read all users instead of changes only"))
    force = fields.Tick(
        label=_("Deactivate any number of missing users"),
        help_text=_("Only if you are sure that they were removed from the directory."),
    )


class ConnectionForm(ApiForm):
    """Where a directory is and what is read from it. The action checks the address."""

    serializer: ClassVar[type[Serializer[object]]] = DirectoryChanges

    secret = fields.NewPassword(
        label=_("New secret"),
        required=False,
        strip=False,
        help_text=_(
            "Needed again for every change of the server or the account. Leave it empty to keep the present one."
        ),
    )
    mapping = fields.JsonObject(
        label=_("Attributes"),
        required=False,
        help_text=_(
            "Which attributes become the address, the name, the metadata and the app metadata of a user, such as "
            '{"email": "mail", "name": "displayName", "app_metadata": {"department": "department"}}. Users can change their '
            "metadata themselves, but not their app metadata."
        ),
    )
    groups = fields.JsonObject(
        label=_("Groups"),
        required=False,
        help_text=_("Which groups of the directory (DN or object id) become which groups of the tenant."),
    )

    def body(self) -> Context:
        return {name: v for name, v in self.cleaned_data.items() if v not in (None, "") or name in _MAY_BE_EMPTY}


class ActiveDirectoryForm(ConnectionForm):
    server = fields.Line(label=_("Server"), help_text=_("A host name or address, without scheme and port."))
    port = fields.Number(label=_("Port"), required=False, help_text=_("Default: 636, with STARTTLS 389"))
    tls = fields.Pick(label=_("TLS"), choices=[(LDAPS, "LDAPS"), (STARTTLS, "STARTTLS")], initial=LDAPS)
    ca_certificate = fields.Paragraph(
        label=_("CA certificate"),
        required=False,
        help_text=_("PEM of the certificate authorities to trust instead of the system's."),
    )
    base_dn = fields.Line(label=_("Base DN"))
    bind_dn = fields.Line(label=_("Bind DN"), help_text=_("The account that reads: a DN, or name@domain."))
    user_filter = fields.Line(
        label=_("User filter"), required=False, help_text=_("An LDAP filter, such as (department=Sales).")
    )
    field_order = ("name", "server", "port", "tls", "ca_certificate", "base_dn", "bind_dn", "secret", "user_filter")


class EntraForm(ConnectionForm):
    directory_tenant_id = fields.Line(label=_("Directory id"), help_text=_("The tenant id in Entra ID, or a domain."))
    application_id = fields.Line(label=_("Application id"))
    cloud = fields.Line(label=_("Cloud"), required=False, help_text=_("Default: global"))
    field_order = ("name", "directory_tenant_id", "application_id", "secret", "cloud")


class NewDirectoryForm(ScheduleForm, ConnectionForm):
    """The fields of a new directory, beside those of its kind."""

    serializer = DirectoryIn
    kind: ClassVar[str]

    enabled = fields.Tick(label=_("Enabled"), initial=True)
    sync_every_minutes = fields.Number(
        label=_("Interval (minutes)"), required=False, initial=60, help_text=_("Leave empty to run only on request.")
    )
    max_deactivation_percent = fields.Number(
        label=_("Deactivation limit (percent)"),
        initial=20,
        help_text=_("A run that would deactivate more users is rejected."),
    )
    secret = fields.NewPassword(
        label=_("Secret"),
        strip=False,
        help_text=_("The password of the account, or the client secret of the application. It is never shown again."),
    )

    def body(self) -> Context:
        interval = self.cleaned_data.get("sync_every_minutes")
        return {**super().body(), "sync_every_minutes": interval, "kind": self.kind}


class NewActiveDirectoryForm(NewDirectoryForm, ActiveDirectoryForm):
    kind = ACTIVE_DIRECTORY


class NewEntraForm(NewDirectoryForm, EntraForm):
    kind = ENTRA_ID


CONNECTION_FORMS: dict[str, type[ConnectionForm]] = {ACTIVE_DIRECTORY: ActiveDirectoryForm, ENTRA_ID: EntraForm}
