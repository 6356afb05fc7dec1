"""Directories of the chosen tenant: how they are configured, without their secrets, and what their runs did."""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.frame import labels
from console.frame.access import Staff, needs, staff_at
from console.frame.confirm import confirmed
from console.frame.records import (
    BAD,
    GOOD,
    MIND,
    NOTHING,
    PLAIN,
    Button,
    Cell,
    Record,
    Table,
    Text,
    moment,
    record_page,
    yes_or_no,
)
from console.frame.scope import tenant_at
from console.platform.forms import ScheduleForm, SyncForm
from userflow.directory import actions, synchronising
from userflow.directory.models import FAILED, INCOMPLETE, INTERRUPTED, REFUSED, RUNNING, SUCCEEDED, DirectoryRun
from userflow.sessions.assurance import Action

MOST_SHOWN = 100
RUNS_SHOWN = 20
_TONES = {RUNNING: PLAIN, SUCCEEDED: GOOD, FAILED: BAD, REFUSED: BAD, INCOMPLETE: MIND, INTERRUPTED: MIND}
_KINDS = {"active_directory": "Active Directory", "entra_id": "Entra ID"}
_TARGET: dict[str, Text] = {
    "server": gettext_lazy("Server"),
    "port": gettext_lazy("Port"),
    "tls": gettext_lazy("TLS"),
    "ca_certificate": gettext_lazy("Certificate of the authority"),
    "base_dn": gettext_lazy("Base (DN)"),
    "bind_dn": gettext_lazy("Signs in as (DN)"),
    "directory_tenant_id": gettext_lazy("Id of the directory"),
    "application_id": gettext_lazy("Id of the application"),
    "cloud": gettext_lazy("Cloud"),
}


def _found(request: HttpRequest, config_id: UUID) -> actions.Shown:
    return actions.find_directory(tenant_id=tenant_at(request).pk, config_id=config_id)


def _page_of(config_id: UUID) -> str:
    return reverse("admin:directory", args=[config_id])


def _run_state(run: DirectoryRun | None) -> Cell:
    if run is None:
        return Cell(_("never"), tone=PLAIN)
    shown = labels.state(run.state)
    return Cell(f"{shown} ({_('dry run')})" if run.dry_run else shown, tone=_TONES[run.state])


@needs("directory:read")
def listed(request: HttpRequest) -> HttpResponse:
    """The directories of the tenant."""
    found = actions.list_directories(tenant_id=tenant_at(request).pk, page=1, limit=MOST_SHOWN)
    table = Table(
        title=_("Directories"),
        headers=(_("Name"), _("Kind"), _("On"), _("Last run"), _("Ended"), _("Next run")),
        rows=[
            (
                Cell(shown.config.name, link=_page_of(shown.config.pk)),
                Cell(_KINDS[shown.config.kind]),
                yes_or_no(shown.config.enabled),
                _run_state(shown.last_run),
                Cell(moment(shown.last_run.finished_at if shown.last_run else None)),
                Cell(moment(shown.config.next_run_at)),
            )
            for shown in found.rows
        ],
        empty=_("No directory yet. The API adds one (POST on /uflow/directory/configs); then try it out here."),
        note=_("The newest %(most)d are shown.") % {"most": MOST_SHOWN} if found.total > MOST_SHOWN else "",
    )
    return record_page(request, Record(title=_("Directories"), tables=[table]))


@needs("directory:read")
def show(request: HttpRequest, config_id: UUID) -> HttpResponse:
    """One directory with its runs."""
    staff = staff_at(request)
    config = _found(request, config_id).config
    found = actions.list_runs(tenant_id=config.tenant_id, config_id=config.pk, page=1, limit=RUNS_SHOWN)
    facts: list[tuple[Text, Cell]] = [
        (_("Kind"), Cell(_KINDS[config.kind])),
        (_("Switched on"), yes_or_no(config.enabled)),
        *((_TARGET[name], Cell(config.target.get(name) or NOTHING, mono=True)) for name in actions.TARGET[config.kind]),
        (_("Secret stored"), Cell(moment(config.secret_set_at))),
        (_("Filter of people"), Cell(config.user_filter or NOTHING, mono=True)),
        (_("Groups that are followed"), Cell(len(config.groups))),
        (_("Switches off at most"), Cell(f"{config.max_deactivation_percent} %")),
        (
            _("Every"),
            Cell(_("%(n)d minutes") % {"n": config.sync_every_minutes} if config.sync_every_minutes else NOTHING),
        ),
        (_("Next run"), Cell(moment(config.next_run_at))),
    ]
    runs = Table(
        title=_("Runs"),
        headers=(_("Begun"), _("Set off by"), _("State"), _("Found"), _("New"), _("Changed"), _("Off"), _("Left out")),
        rows=[
            (
                Cell(moment(run.started_at), link=reverse("admin:directory_run", args=[config.pk, run.pk])),
                Cell(run.trigger),
                _run_state(run),
                Cell(run.users_found),
                Cell(run.users_created),
                Cell(run.users_updated),
                Cell(run.users_deactivated),
                Cell(run.users_skipped),
            )
            for run in found.rows
        ],
        empty=_("It has never run. Begin with a dry run: it says what would be done and changes nothing."),
        note=_("The newest %(most)d are shown.") % {"most": RUNS_SHOWN} if found.total > RUNS_SHOWN else "",
    )
    return record_page(
        request,
        Record(
            title=config.name,
            facts=facts,
            tables=[runs],
            buttons=_doings(staff, config.pk),
            back=reverse("admin:directories"),
        ),
    )


def _doings(staff: Staff, config_id: UUID) -> list[Button]:
    def button(title: str, name: str, variant: str = "default") -> Button:
        return Button(title, reverse(f"admin:directory_{name}", args=[config_id]), variant)

    syncs = [button(_("Dry run"), "dry_run", "primary"), button(_("Synchronise"), "sync"), button(_("Try it"), "try")]
    changes = [button(_("Change"), "change"), button(_("Delete"), "delete")]
    return [
        *(syncs if staff.may("directory:sync") else []),
        *(changes if staff.may("directory:write") else []),
    ]


@needs("directory:read")
def show_run(request: HttpRequest, config_id: UUID, run_id: UUID) -> HttpResponse:
    """One run: its figures, what it left out and why, and what a dry run would have done."""
    config = _found(request, config_id).config
    run = DirectoryRun.objects.filter(pk=run_id, config_id=config.pk, tenant_id=config.tenant_id).first()
    if run is None:
        raise Http404
    return _run_page(request, run, config.name, run.preview_users)


def _run_page(request: HttpRequest, run: DirectoryRun, name: str, preview: list[dict[str, Any]]) -> HttpResponse:
    figures = ("found", "created", "updated", "activated", "deactivated", "skipped")
    facts = [
        (_("State"), _run_state(run)),
        (_("Reason"), Cell(run.reason or NOTHING)),
        (_("Set off by"), Cell(run.trigger)),
        (_("Read"), Cell(_("everything") if run.full else _("what had changed"))),
        (_("Begun"), Cell(moment(run.started_at))),
        (_("Ended"), Cell(moment(run.finished_at))),
        *((_("People %(what)s") % {"what": figure}, Cell(getattr(run, f"users_{figure}"))) for figure in figures),
    ]
    problems = Table(
        title=_("Left out"),
        headers=(_("Object"), _("Why"), _("What it means")),
        rows=[(Cell(row["external_id"], mono=True), Cell(row["code"]), Cell(row["message"])) for row in run.errors],
        empty=_("Nothing was left out."),
    )
    tables = [problems]
    if run.dry_run:
        tables.append(
            Table(
                title=_("What would be done"),
                headers=(_("Object"), _("Step"), _("Who")),
                rows=[
                    (
                        Cell(row["external_id"], mono=True),
                        Cell(row["action"]),
                        Cell(row.get("email") or row.get("name") or NOTHING),
                    )
                    for row in preview
                ],
                note=_("Names are shown right after the run only: its record keeps none."),
                empty=_("Nothing: the tenant is what the directory says.")
                if run.state == SUCCEEDED
                else _("Nobody knows: the run did not end well. The reason above says what to do."),
            )
        )
    title = _("Run of %(name)s") % {"name": name}
    answer = record_page(request, Record(title=title, facts=facts, tables=tables, back=_page_of(run.config_id)))
    answer.headers["Cache-Control"] = "no-store"
    return answer


@needs("directory:sync")
def dry_run(request: HttpRequest, config_id: UUID) -> HttpResponse:
    """Say what a synchronisation would do."""
    return _synchronise(
        request,
        config_id,
        dry=True,
        title=_("Dry run of %(name)s"),
        text=_("The directory is read and compared; nothing changes. It takes as long as the directory does."),
    )


@needs("directory:sync")
def sync(request: HttpRequest, config_id: UUID) -> HttpResponse:
    """Make the tenant's people what the directory says."""
    return _synchronise(
        request,
        config_id,
        dry=False,
        title=_("Synchronise %(name)s"),
        text=_(
            "People are made, changed and switched off as the directory says. A run that is not done within "
            "%(seconds)d seconds ends as incomplete; the command sync_directory has more time."
        )
        % {"seconds": settings.DIRECTORY_REQUEST_SECONDS},
    )


def _synchronise(request: HttpRequest, config_id: UUID, *, dry: bool, title: str, text: str) -> HttpResponse:
    tenant, staff = tenant_at(request), staff_at(request)
    config = _found(request, config_id).config
    done: dict[str, Any] = {}

    def act(typed: dict[str, Any]) -> str:
        done["ran"] = synchronising.synchronise(
            tenant_id=tenant.pk,
            config_id=config.pk,
            dry_run=dry,
            seconds=settings.DIRECTORY_REQUEST_SECONDS,
            by=staff.principal,
            force=typed["force"],
            full=typed["full"],
        )
        return _("The run has ended: %(state)s.") % {"state": done["ran"].run.state}

    return confirmed(
        request,
        title=title % {"name": config.name},
        text=text,
        back=_page_of(config.pk),
        action=None,
        act=act,
        form_class=SyncForm,
        submit=_("Begin"),
        tenant=tenant,
        dangerous=not dry,
        shown=lambda _request: _run_page(request, done["ran"].run, config.name, done["ran"].tally.preview),
    )


@needs("directory:sync")
def try_it(request: HttpRequest, config_id: UUID) -> HttpResponse:
    """Connect and read the first few people, changing nothing."""
    tenant = tenant_at(request)
    config = _found(request, config_id).config
    found: dict[str, synchronising.Tried] = {}

    def act(_typed: dict[str, Any]) -> str:
        found["tried"] = synchronising.try_directory(tenant_id=tenant.pk, config_id=config.pk)
        return _("The directory was asked.")

    def shown(_request: HttpRequest) -> HttpResponse:
        tried = found["tried"]
        sample = Table(
            title=_("The first people as they would come"),
            headers=(_("Address"), _("Name")),
            rows=[(Cell(entry.email or NOTHING), Cell(entry.name or NOTHING)) for entry in tried.sample],
            empty=_("The directory showed nobody: look at the filter and at what the account may read."),
        )
        record = Record(
            title=_("Trial of %(name)s") % {"name": config.name},
            warning=tried.problem,
            tables=[] if tried.problem else [sample],
            back=_page_of(config.pk),
        )
        answer = record_page(request, record)
        answer.headers["Cache-Control"] = "no-store"
        return answer

    return confirmed(
        request,
        title=_("Try %(name)s") % {"name": config.name},
        text=_("The platform connects with the stored secret and reads the first people; nothing changes."),
        back=_page_of(config.pk),
        action=None,
        act=act,
        submit=_("Try it"),
        tenant=tenant,
        dangerous=False,
        shown=shown,
    )


@needs("directory:write")
def change(request: HttpRequest, config_id: UUID) -> HttpResponse:
    """Switch a directory on or off, and say how often it is read."""
    tenant, staff = tenant_at(request), staff_at(request)
    config = _found(request, config_id).config
    initial = {name: getattr(config, name) for name in ScheduleForm.base_fields}

    def act(typed: dict[str, Any]) -> str:
        changes = {name: value for name, value in typed.items() if value != initial[name]}
        if changes:
            actions.update_directory(tenant_id=tenant.pk, config_id=config.pk, by=staff.principal, changes=changes)
        return _("The directory is saved.")

    return confirmed(
        request,
        title=_("Change %(name)s") % {"name": config.name},
        text=_("Where the directory is and its secret are changed by the API."),
        back=_page_of(config.pk),
        action=Action.CHANGE_CONNECTIONS,
        act=act,
        form_class=ScheduleForm,
        form_options={"initial": initial},
        submit=_("Save"),
        tenant=tenant,
        dangerous=False,
    )


@needs("directory:write")
def delete(request: HttpRequest, config_id: UUID) -> HttpResponse:
    """Remove a directory with its secret and its runs."""
    tenant, staff = tenant_at(request), staff_at(request)
    config = _found(request, config_id).config

    def act(_typed: dict[str, Any]) -> str:
        actions.delete_directory(tenant_id=tenant.pk, config_id=config.pk, by=staff.principal)
        return _("The directory is removed; its people stay as they are.")

    return confirmed(
        request,
        title=_("Delete %(name)s") % {"name": config.name},
        text=_("Its secret and its runs go with it; the people who came from it stay as they are."),
        back=_page_of(config.pk),
        action=Action.CHANGE_CONNECTIONS,
        act=act,
        submit=_("Delete"),
        tenant=tenant,
        onward=lambda: reverse("admin:directories"),
    )
