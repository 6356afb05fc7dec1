"""Directories of the chosen tenant: their configuration without secrets, and their runs."""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from django.conf import settings
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.frame import labels
from console.frame.access import Context, Staff, needs, staff_at
from console.frame.confirm import ChosenTenantConfirmView, CreateView, DeleteView, EditView, RowView
from console.frame.records import (
    Button,
    Cell,
    Table,
    Text,
    Tone,
    buttons_to,
    moment,
    mono,
    never_stored,
    record_page,
    with_encoded_form,
)
from console.frame.scope import tenant_at
from console.platform.directory_forms import (
    CONNECTION_FORMS,
    NewActiveDirectoryForm,
    NewEntraForm,
    ScheduleForm,
    SyncForm,
)
from identity_platform.api.views import Arguments
from userflow.directory import actions, models, synchronising
from userflow.directory.models import DirectoryConfig, DirectoryRun
from userflow.sessions.assurance import Action

LIST: Final = "admin:directories"
PAGE: Final = "admin:directory"
MOST_SHOWN: Final = 100
RUNS_SHOWN = 20
_TONES = {
    models.RUNNING: Tone.PLAIN,
    models.SUCCEEDED: Tone.GOOD,
    models.FAILED: Tone.BAD,
    models.REFUSED: Tone.BAD,
    models.INCOMPLETE: Tone.WARNING,
    models.INTERRUPTED: Tone.WARNING,
}
_KINDS = {"active_directory": "Active Directory", "entra_id": "Entra ID"}
_TARGET: dict[str, Text] = {
    "server": _("Server"),
    "port": _("Port"),
    "tls": _("TLS"),
    "ca_certificate": _("CA certificate"),
    "base_dn": _("Base DN"),
    "bind_dn": _("Bind DN"),
    "directory_tenant_id": _("Directory id"),
    "application_id": _("Application id"),
    "cloud": _("Cloud"),
}

TRIGGERS: Final[dict[str, Text]] = {
    models.BY_REQUEST: _("a request"),
    models.BY_COMMAND: _("the command"),
    models.BY_SCHEDULE: _("the schedule"),
}
# Of users, in the columns of a run.
COUNTS: Final[dict[str, Text]] = {
    "found": _("Found"),
    "created": _("Created"),
    "updated": _("Updated"),
    "activated": _("Activated"),
    "deactivated": _("Deactivated"),
    "skipped": _("Skipped"),
}


def _find(request: HttpRequest, config_id: UUID) -> DirectoryConfig:
    return actions.find_directory(tenant_id=tenant_at(request).pk, config_id=config_id).config


def _run_state(run: DirectoryRun | None) -> Cell:
    if run is None:
        return Cell(_("never"), tone=Tone.PLAIN)
    shown = labels.state(run.state)
    return Cell(f"{shown} ({_('dry run')})" if run.dry_run else shown, tone=_TONES[run.state])


@needs("directory:read")
def listed(request: HttpRequest) -> HttpResponse:
    staff = staff_at(request)
    add = buttons_to("directory_add", active_directory=_("Add Active Directory"), entra_id=_("Add Entra ID"))
    directories = actions.list_directories(tenant_id=tenant_at(request).pk, page=1, limit=MOST_SHOWN)
    table = Table(
        title=_("Directories"),
        headers=(_("Name"), _("Kind"), _("Enabled"), _("Last run"), _("Ended"), _("Next run")),
        rows=[
            (
                Cell(shown.config.name, link=reverse(PAGE, args=[shown.config.pk])),
                _KINDS[shown.config.kind],
                shown.config.enabled,
                _run_state(shown.last_run),
                shown.last_run.finished_at if shown.last_run else None,
                shown.config.next_run_at,
            )
            for shown in directories.rows
        ],
        buttons=add if staff.may("directory:write") else (),
        empty=_("No directory yet. Add one and test it before its first run."),
        note=_("The newest %(most)d are shown.") % {"most": MOST_SHOWN} if directories.total > MOST_SHOWN else "",
    )
    return record_page(request, _("Directories"), tables=[table])


@needs("directory:read")
def show(request: HttpRequest, config_id: UUID) -> HttpResponse:
    """One directory with its runs."""
    config = _find(request, config_id)
    every = config.sync_every_minutes
    facts: list[tuple[Text, object]] = [
        (_("Kind"), _KINDS[config.kind]),
        (_("Enabled"), config.enabled),
        *((_TARGET[name], mono(config.target.get(name))) for name in actions.TARGET[config.kind]),
        (_("Secret stored"), config.secret_set_at),
        (_("User filter"), mono(config.user_filter)),
        (_("Mapped groups"), len(config.groups)),
        (_("Deactivation limit"), f"{config.max_deactivation_percent} %"),
        (_("Interval"), _("%(n)d minutes") % {"n": every} if every else None),
        (_("Next run"), config.next_run_at),
    ]
    buttons = _buttons(staff_at(request), config.pk)
    return record_page(request, config.name, facts=facts, tables=[_runs(config)], buttons=buttons, back=reverse(LIST))


def _runs(config: DirectoryConfig) -> Table:
    runs = actions.list_runs(tenant_id=config.tenant_id, config_id=config.pk, page=1, limit=RUNS_SHOWN)
    users = _("Found"), _("Created"), _("Updated"), _("Deactivated"), _("Skipped")
    return Table(
        title=_("Runs"),
        headers=(_("Started"), _("Triggered by"), _("State"), *users),
        rows=[
            (
                Cell(moment(run.started_at), link=reverse("admin:directory_run", args=[config.pk, run.pk])),
                TRIGGERS[run.trigger],
                _run_state(run),
                run.users_found,
                run.users_created,
                run.users_updated,
                run.users_deactivated,
                run.users_skipped,
            )
            for run in runs.rows
        ],
        empty=_("No runs yet. Begin with a dry run: it shows what would change and changes nothing."),
        note=_("The newest %(most)d are shown.") % {"most": RUNS_SHOWN} if runs.total > RUNS_SHOWN else "",
    )


def _buttons(staff: Staff, config_id: UUID) -> list[Button]:
    buttons = []
    if staff.may("directory:sync"):
        buttons += [
            Button(_("Dry run"), reverse("admin:directory_dry_run", args=[config_id]), "primary"),
            *buttons_to("directory", config_id, sync=_("Synchronize"), **{"try": _("Test")}),
        ]
    if staff.may("directory:write"):
        buttons += buttons_to(
            "directory", config_id, change=_("Edit"), connection=_("Edit connection"), delete=_("Delete")
        )
    return buttons


@needs("directory:read")
def show_run(request: HttpRequest, config_id: UUID, run_id: UUID) -> HttpResponse:
    """One run: its counts, what it skipped and why, and what a dry run would have changed."""
    config = _find(request, config_id)
    run = get_object_or_404(DirectoryRun, pk=run_id, config_id=config.pk, tenant_id=config.tenant_id)
    return _run_page(request, run, config.name, run.preview_users)


def _run_page(
    request: HttpRequest, run: DirectoryRun, name: str, preview: Sequence[Mapping[str, object]]
) -> HttpResponse:
    facts: list[tuple[Text, object]] = [
        (_("State"), _run_state(run)),
        (_("Reason"), run.reason),
        (_("Triggered by"), TRIGGERS[run.trigger]),
        (_("Mode"), _("full") if run.full else _("changes only")),
        (_("Started"), run.started_at),
        (_("Ended"), run.finished_at),
        *((label, getattr(run, f"users_{count}")) for count, label in COUNTS.items()),
    ]
    skipped = Table(
        title=_("Skipped"),
        headers=(_("Object"), _("Code"), _("Message")),
        rows=[(mono(row["external_id"]), row["code"], row["message"]) for row in run.errors],
        empty=_("Nothing was skipped."),
    )
    tables = [skipped, _preview(run, preview)] if run.dry_run else [skipped]
    back = reverse(PAGE, args=[run.config_id])
    title = _("Run of %(name)s") % {"name": name}
    return never_stored(record_page(request, title, facts=facts, tables=tables, back=back))


def _preview(run: DirectoryRun, rows: Sequence[Mapping[str, object]]) -> Table:
    return Table(
        title=_("What would change"),
        headers=(_("Object"), _("Change"), _("Name")),
        rows=[
            (
                mono(row["external_id"]),
                row["action"],
                with_encoded_form(str(row["email"])) if row.get("email") else row.get("name"),
            )
            for row in rows
        ],
        note=_("Names are shown right after the run only; its record stores none."),
        empty=_("Nothing: the tenant matches the directory.")
        if run.state == models.SUCCEEDED
        else _("Unknown: the run did not succeed. See the reason above."),
    )


class DirectoryConfirmView(RowView[DirectoryConfig], ChosenTenantConfirmView):
    page = PAGE
    list_page = LIST
    key = "config_id"
    lookup = staticmethod(_find)

    def names(self) -> Context:
        return {**super().names(), "seconds": settings.DIRECTORY_REQUEST_SECONDS}


class Synchronize(DirectoryConfirmView):
    permissions = ("directory:sync",)
    title = _("Synchronize %(name)s")
    text = _(
        "Users are created, updated and deactivated as in the directory. A run that takes more than %(seconds)d seconds "
        "ends as incomplete. Use the command sync_directory for longer runs."
    )
    submit = _("Start")
    form_class = SyncForm
    dry_run = False

    ran: synchronising.Ran

    def act(self, form: Form) -> Text:
        seconds = settings.DIRECTORY_REQUEST_SECONDS
        self.ran = synchronising.synchronise(
            **self.arguments(), **form.cleaned_data, dry_run=self.dry_run, seconds=seconds
        )
        return _("The run has ended: %(state)s.") % {"state": self.ran.run.state}

    def respond(self) -> HttpResponse:
        return _run_page(self.request, self.ran.run, self.row.name, self.ran.tally.preview)


class DryRun(Synchronize):
    title = _("Dry run of %(name)s")
    text = _("The directory is read and compared. Nothing changes.")
    dangerous = False
    dry_run = True


class TestDirectory(DirectoryConfirmView):
    permissions = ("directory:sync",)
    title = _("Test %(name)s")
    text = _("The platform connects with the stored secret and reads the first users. Nothing changes.")
    submit = _("Test")
    dangerous = False

    tried: synchronising.Tried

    def act(self, form: Form) -> Text:
        self.tried = synchronising.try_directory(tenant_id=self.tenant.pk, config_id=self.row.pk)
        return _("The directory was tested.")

    def respond(self) -> HttpResponse:
        sample = Table(
            title=_("The first users as they would be imported"),
            headers=(_("Address"), _("Name")),
            rows=[(with_encoded_form(entry.email), entry.name) for entry in self.tried.sample],
            empty=_("The directory returned no users. Check the filter and the permissions of the account."),
        )
        page = record_page(
            self.request,
            _("Test of %(name)s") % self.names(),
            warning=self.tried.problem,
            tables=[] if self.tried.problem else [sample],
            back=self.get_back_url(),
        )
        return never_stored(page)


class CreateDirectory(CreateView[DirectoryConfig], ChosenTenantConfirmView):
    permissions = ("directory:write",)
    action = Action.CHANGE_CONNECTIONS
    page = PAGE
    list_page = LIST
    call = staticmethod(actions.create_directory)
    done = _("The directory is added. Test it, and begin with a dry run.")

    def keep(self, result: actions.DirectoryWithLastRun) -> None:
        self.row = result.config


class CreateActiveDirectory(CreateDirectory):
    title = _("Add Active Directory")
    text = _("The platform reads users from a server over LDAP. Its secret is stored encrypted and never shown again.")
    form_class = NewActiveDirectoryForm


class CreateEntraId(CreateDirectory):
    title = _("Add Entra ID")
    text = _("The platform reads users through Microsoft Graph. The secret is stored encrypted and never shown again.")
    form_class = NewEntraForm


class EditConnection(EditView[DirectoryConfig], DirectoryConfirmView):
    """Change where a directory is and what is read from it; the secret is sent only if it is entered again."""

    permissions = ("directory:write",)
    action = Action.CHANGE_CONNECTIONS
    call = staticmethod(actions.update_directory)
    title = _("Edit the connection of %(name)s")
    text = _("The next run reads all users again. You need all permissions that users of this directory hold.")
    done = _("The connection is saved. Test it.")

    def load(self) -> None:
        super().load()
        self.form_class = CONNECTION_FORMS[self.row.kind]

    def get_initial(self) -> Context:
        row = self.row
        target = {name: row.target.get(name) for name in actions.TARGET[row.kind]}
        filters = {"user_filter": row.user_filter} if row.kind == models.ACTIVE_DIRECTORY else {}
        return {**target, **filters, "mapping": row.mapping, "groups": row.groups}

    def changed_fields(self, form: Form) -> Arguments:
        secret = form.cleaned_data.get("secret")
        return {**super().changed_fields(form), **({"secret": secret} if secret else {})}

    def update(self, changes: Arguments) -> Text:
        self.call_action(**changes)
        return self.done


class EditDirectory(EditView[DirectoryConfig], DirectoryConfirmView):
    permissions = ("directory:write",)
    action = Action.CHANGE_CONNECTIONS
    call = staticmethod(actions.update_directory)
    title = _("Edit %(name)s")
    form_class = ScheduleForm
    done = _("The directory is saved.")

    def update(self, changes: Arguments) -> Text:
        self.call_action(**changes)
        return self.done


class DeleteDirectory(DeleteView[DirectoryConfig], DirectoryConfirmView):
    permissions = ("directory:write",)
    action = Action.CHANGE_CONNECTIONS
    title = _("Delete %(name)s")
    text = _("Its secret and its runs are deleted too. Users who were imported from it stay.")
    submit = _("Delete")
    call = staticmethod(actions.delete_directory)
    done = _("The directory is deleted. Its users stay.")
