"""Read-only and maintenance mode: what is limited, and the pages that start and end it."""

from datetime import timedelta

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _

from console.frame import forms as fields
from console.frame.access import needs, staff_at
from console.frame.confirm import ConfirmView
from console.frame.records import Button, Cell, Table, Text, Tone, record_page
from tenants import operating_modes
from tenants.models import DatabaseServer, OperatingMode
from tenants.states import Mode
from userflow.sessions.assurance import Action

LIST = "admin:modes"
MODES = {Mode.READ_ONLY: _("Read-only"), Mode.MAINTENANCE: _("Closed for maintenance")}
_PLATFORM = ""


@needs("tenants:read", operators_only=True)
def listed(request: HttpRequest) -> HttpResponse:
    may = staff_at(request).may("tenants:write")
    modes = operating_modes.list_modes()
    buttons = [Button(_("Start a mode"), reverse("admin:mode_start"), "primary")]
    if modes:
        buttons.append(Button(_("End a mode"), reverse("admin:mode_end")))
    table = Table(
        title=_("What is limited"),
        headers=(_("Platform or server"), _("Mode"), _("Announced end"), _("Since"), _("Reason")),
        rows=[
            (
                _name(row),
                Cell(MODES[Mode(row.mode)], tone=Tone.WARNING if row.mode == Mode.READ_ONLY else Tone.BAD),
                row.until,
                row.started_at,
                row.reason,
            )
            for row in modes
        ],
        buttons=buttons if may else (),
        empty=_("Nothing is limited: all requests are served."),
    )
    text = _("All processes apply a change within about two seconds. A mode lasts until an operator ends it.")
    return record_page(request, _("Maintenance"), text=text, tables=[table])


def _name(row: OperatingMode) -> Text:
    return row.server.name if row.server else _("The whole platform")


class ModeForm(forms.Form):
    server = fields.Pick(label=_("Platform or server"), required=False)
    mode = fields.Pick(
        label=_("Mode"),
        choices=list(MODES.items()),
        help_text=_(
            "Read-only: reads and valid tokens go on, writes and sign-ins get 503. Maintenance: everything gets 503 but the "
            "console for operators and the probes."
        ),
    )
    minutes = fields.Number(
        label=_("Announced duration in minutes"),
        required=False,
        min_value=1,
        max_value=10_080,
        help_text=_("Shown to callers. The mode does not end by itself."),
    )
    reason = fields.Line(
        label=_("Reason"),
        required=False,
        max_length=operating_modes.LONGEST_REASON,
        help_text=_("For the audit log and this page."),
    )

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]  # passed on as they are
        names = DatabaseServer.objects.order_by("name").values_list("name", flat=True)
        fields.set_choices(self, "server", [(_PLATFORM, _("The whole platform")), *((name, name) for name in names)])


class ModeView(ConfirmView):
    """A page that works in every mode, as operators end a mode there."""

    permissions = ("tenants:write",)
    operators_only = True
    list_page = LIST
    action = Action.CHANGE_TENANT_STATE


class StartMode(ModeView):
    title = _("Start a mode")
    submit = _("Start")
    form_class = ModeForm

    def act(self, form: forms.Form) -> Text:
        entered = form.cleaned_data
        minutes = entered["minutes"]
        operating_modes.start_mode(
            mode=Mode(entered["mode"]),
            server=entered["server"] or None,
            until=now() + timedelta(minutes=minutes) if minutes else None,
            reason=entered["reason"],
        )
        return _("The mode is started.")


class EndForm(forms.Form):
    server = fields.Pick(label=_("Platform or server"), required=False)

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]  # passed on as they are
        limited = [(row.server.name if row.server else _PLATFORM, _name(row)) for row in operating_modes.list_modes()]
        fields.set_choices(self, "server", limited)


class EndMode(ModeView):
    title = _("End a mode")
    text = _("All requests are served again within about two seconds.")
    submit = _("End")
    dangerous = False
    form_class = EndForm

    def act(self, form: forms.Form) -> Text:
        operating_modes.end_mode(server=form.cleaned_data["server"] or None)
        return _("The mode is ended.")
