"""Log levels of running processes: what is set, and the pages that set and reset one."""

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.frame import forms as fields
from console.frame.access import needs, staff_at
from console.frame.confirm import ConfirmView
from console.frame.records import Button, Table, Text, record_page
from identity_platform.api.log_levels import LEVELS, PLATFORM, areas
from tenants import log_levels
from userflow.sessions.assurance import Action

LIST = "admin:log_levels"
_PLATFORM_NAME = _("The whole platform")


@needs("tenants:read", operators_only=True)
def listed(request: HttpRequest) -> HttpResponse:
    rows = log_levels.list_levels()
    buttons = [Button(_("Set a log level"), reverse("admin:log_level_set"), "primary")]
    if rows:
        buttons.append(Button(_("Reset a log level"), reverse("admin:log_level_reset")))
    table = Table(
        title=_("Levels that are set"),
        headers=(_("Area"), _("Level"), _("Ends")),
        rows=[(row.area or _PLATFORM_NAME, row.level, row.until) for row in rows],
        buttons=buttons if staff_at(request).may("tenants:write") else (),
        empty=_("No level is set: LOG_LEVEL applies."),
    )
    text = _("All processes apply a change within about six seconds. A level that is set ends by itself.")
    return record_page(request, _("Log levels"), text=text, tables=[table])


class LevelForm(forms.Form):
    area = fields.Pick(
        label=_("Area"), required=False, choices=[(PLATFORM, _PLATFORM_NAME), *((area, area) for area in areas())]
    )
    level = fields.Pick(label=_("Level"), choices=[(level, level) for level in LEVELS])
    minutes = fields.Number(
        label=_("Duration in minutes"),
        min_value=1,
        max_value=log_levels.MOST_MINUTES,
        initial=log_levels.DEFAULT_MINUTES,
        help_text=_("LOG_LEVEL applies again after it."),
    )


class SetLevel(ConfirmView):
    permissions = ("tenants:write",)
    operators_only = True
    action = Action.CHANGE_TENANT_STATE
    list_page = LIST
    title = _("Set a log level")
    submit = _("Set")
    dangerous = False
    form_class = LevelForm

    def act(self, form: forms.Form) -> Text:
        log_levels.set_level(**form.cleaned_data)
        return _("The log level is set.")


class ResetForm(forms.Form):
    area = fields.Pick(label=_("Area"), required=False)

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]  # passed on as they are
        areas = [row.area for row in log_levels.list_levels()]
        fields.set_choices(self, "area", [(area, area or _PLATFORM_NAME) for area in areas])


class ResetLevel(ConfirmView):
    permissions = ("tenants:write",)
    operators_only = True
    action = Action.CHANGE_TENANT_STATE
    list_page = LIST
    title = _("Reset a log level")
    text = _("LOG_LEVEL applies again within about six seconds.")
    submit = _("Reset")
    dangerous = False
    form_class = ResetForm

    def act(self, form: forms.Form) -> Text:
        log_levels.reset_level(area=form.cleaned_data["area"])
        return _("The log level is reset.")
