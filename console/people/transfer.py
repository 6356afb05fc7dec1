"""Import end users from a small file, and export all of them, by the actions behind the API and the commands."""

from contextlib import closing
from io import TextIOWrapper
from tempfile import TemporaryFile
from typing import IO, Final

from django import forms
from django.db.models import Sum
from django.http import FileResponse, HttpResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _
from unfold.widgets import INPUT_CLASSES

from console.frame.access import Context
from console.frame.confirm import TenantConfirmView
from console.frame.forms import Pick, Tick
from console.frame.records import Table, Text, record_page
from identity_platform.api.errors import ValidationFailed
from identity_platform.transfer.files import RowWriter
from identity_platform.transfer.report import Report, Tally
from identity_platform.transfer.rows import CSV, JSONL
from identity_platform.transfer.runs import FAIL, SKIP, UPDATE, Options
from userflow.accounts.models import EndUserCount
from userflow.credentials import attempts
from userflow.sessions.assurance import Action
from userflow.transfer.actions import import_few
from userflow.transfer.exporting import COLUMNS, export_end_users

LIST: Final = "admin:userflow_enduser_changelist"
# A whole request may have 1 MiB, as over REST.
LARGEST_FILE: Final = 900 * 1024
MOST_EXPORTED: Final = 100_000
_TOO_MANY: Final = _("%(tenant)s has more than %(most)d end users. An operator can export them with export_users.")
FORMATS: Final = [(CSV, _("CSV for spreadsheets")), (JSONL, _("JSON lines, one user a line"))]


class ImportForm(forms.Form):
    file = forms.FileField(
        label=_("File"), widget=forms.FileInput({"accept": ".csv,.jsonl", "class": " ".join(INPUT_CLASSES)})
    )
    format = Pick(label=_("Format"), choices=FORMATS)
    on_conflict = Pick(
        label=_("Users who exist already"),
        choices=[(FAIL, _("list as errors")), (SKIP, _("skip")), (UPDATE, _("update"))],
    )
    dry_run = Tick(label=_("Check only and change nothing"), initial=True)

    def clean_file(self) -> str:
        file = self.cleaned_data["file"]
        if file.size > LARGEST_FILE:
            raise forms.ValidationError(
                _("The file is larger than 900 KB. An operator can import it with import_users.")
            )
        try:
            return str(file.read().decode("utf-8-sig"))
        except UnicodeDecodeError as problem:
            raise forms.ValidationError(_("The file is not in UTF-8.")) from problem


class ImportEndUsers(TenantConfirmView):
    """Import at most 1,000 rows, in one transaction; the result names each rejected row."""

    permissions = ("endusers:read", "endusers:write")
    action = Action.GRANT_ROLES
    list_page = LIST
    title = _("Import end users")
    text = _(
        "A file has at most 1,000 rows and 900 KB; the guide on importing and exporting describes its columns. "
        "Rows with errors are listed and left out, all others are imported."
    )
    submit = _("Import")
    dangerous = False
    form_class = ImportForm

    tally: Tally
    report: Report
    dry_run: bool

    def act(self, form: forms.Form) -> Text:
        fields = form.cleaned_data
        self.dry_run = bool(fields["dry_run"])
        options = Options(dry_run=self.dry_run, on_conflict=fields["on_conflict"])
        self.tally, self.report = import_few(
            **self.arguments(), options=options, content=fields["file"], form=fields["format"]
        )
        return _("The file was checked. Nothing was changed.") if self.dry_run else _("The file was imported.")

    def respond(self) -> HttpResponse:
        counts = self.tally.counts()
        facts = (
            (_("Would be created") if self.dry_run else _("Created"), counts["created"]),
            (_("Would be updated") if self.dry_run else _("Updated"), counts["updated"]),
            (_("Skipped"), counts["skipped"]),
            (_("With errors"), counts["failed"]),
        )
        faults = Table(
            title=_("Errors"),
            headers=(_("Line"), _("Field"), _("Reason")),
            rows=[(fault.line, fault.field, fault.reason) for fault in self.report.first_faults],
            empty=_("No row has an error."),
        )
        title = _("Result of the check") if self.dry_run else _("Result of the import")
        return record_page(self.request, title, facts=facts, tables=[faults], back=reverse(LIST))


class ExportForm(forms.Form):
    format = Pick(label=_("Format"), choices=FORMATS)


class ExportEndUsers(TenantConfirmView):
    """Download all end users, without password hashes. The export is audited before the first row is read."""

    permissions = ("endusers:read",)
    list_page = LIST
    title = _("Export end users")
    text = _(
        "All end users of %(tenant)s with groups, roles and metadata, at most %(most)d, without passwords and secrets of "
        "factors. Store the file as carefully as the users' data itself."
    )
    submit = _("Export")
    dangerous = False
    form_class = ExportForm

    file: IO[bytes]
    file_format: str

    def names(self) -> Context:
        return {**super().names(), "most": MOST_EXPORTED}

    def act(self, form: forms.Form) -> Text:
        attempts.limit_address("transfer")
        # Counters that triggers keep: counting the users themselves would read all of them.
        users = EndUserCount.objects.aggregate(users=Sum("users"))["users"] or 0
        if users > MOST_EXPORTED:
            raise ValidationFailed(str(_TOO_MANY) % self.names())
        self.file_format = form.cleaned_data["format"]
        # A file, not a stream: a slow browser would hold the snapshot of the database open.
        self.file = TemporaryFile()  # noqa: SIM115  # the response closes it
        text = TextIOWrapper(self.file, encoding="utf-8", newline="", write_through=True)
        writer = RowWriter(text, self.file_format, [name for name in COLUMNS if name != "password_hash"])
        with closing(export_end_users(tenant_id=self.tenant.pk, hashes=False, definitions=False)) as rows:
            for row in rows:
                writer.write(row)
        text.detach()
        self.file.seek(0)
        return _("The export was recorded in the audit log.")

    def respond(self) -> HttpResponse:
        name = f"end-users-{self.tenant.slug}-{now():%Y%m%d-%H%M%S}.{self.file_format}"
        response = FileResponse(self.file, as_attachment=True, filename=name)
        response.headers["Cache-Control"] = "no-store"
        return response  # type: ignore[return-value]  # Django's streaming responses are no HttpResponse to the type checker
