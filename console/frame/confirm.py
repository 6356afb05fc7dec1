"""One page for everything that changes something: it says what will happen, asks, acts and comes back."""

import hashlib
from collections.abc import Callable
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from unfold.widgets import UnfoldAdminTextInputWidget

from console.frame.access import staff_at
from console.frame.step_up import step_up_first, to_step_up
from console.frame.tenant_pages import form_of_another_tenant
from identity_platform.api.errors import ApiError
from identity_platform.api.handlers import note_rejection
from tenants.models import Tenant
from userflow.errors import InsufficientAuthentication
from userflow.sessions.assurance import Action

# The hidden field that says what a form was drawn with.
FORM_STATE: Final = "form_state"


class TypedName(forms.Form):
    """To go on, the name must be typed: nobody deletes the wrong tenant by one click."""

    typed = forms.CharField(
        max_length=255, strip=True, widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"})
    )

    def __init__(self, *args: Any, wanted: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.wanted = wanted
        self.fields["typed"].label = _("Type %(wanted)s to go on") % {"wanted": wanted}

    def clean_typed(self) -> str:
        """ValidationError unless it is exactly the wanted name."""
        typed = str(self.cleaned_data["typed"])
        if typed != self.wanted:
            raise forms.ValidationError(_("This is not %(wanted)s.") % {"wanted": self.wanted})
        return typed


def _show(error: ApiError, form: forms.Form) -> None:
    """Each problem at its field; what belongs to no field, and the error itself, above the form."""
    details = {name: told for name, told in (error.details or {}).items() if isinstance(told, list)}
    at_fields = {name.partition("[")[0]: told for name, told in details.items()}
    if not at_fields or not at_fields.keys() <= form.fields.keys():
        form.add_error(None, error.text)
    for name, told in at_fields.items():
        form.add_error(name if name in form.fields else None, told)


def _state(initial: dict[str, Any]) -> str:
    """A short name for the values that a form is drawn with."""
    return hashlib.sha256(repr(sorted(initial.items())).encode()).hexdigest()[:32]


def confirmed(
    request: HttpRequest,
    *,
    title: str,
    text: str,
    back: str,
    action: Action | None,
    act: Callable[[dict[str, Any]], str],
    form_class: type[forms.Form] = forms.Form,
    form_options: dict[str, Any] | None = None,
    submit: str = "",
    dangerous: bool = True,
    shown: Callable[[HttpRequest], HttpResponse] | None = None,
    onward: Callable[[], str] | None = None,
    tenant: Tenant | None = None,
    template: str = "console/confirm.html",
    context: dict[str, Any] | None = None,
) -> HttpResponse:
    """Ask, then act. The caller has checked the permission.

    `act` takes the form's cleaned data, calls the action and gives the sentence that reports success; an error of the
    action is shown at the form and nothing is lost. `action` is the row of the action table that the page is about, or
    None if it has none: where the session proves too little for it, the re-authentication page comes first. `dangerous`
    makes the button red. `shown`
    answers after success in place of the way back (for what is shown once); `onward` gives where else to go then, such
    as the page of what was made. `tenant` is the one that a page inside a tenant is drawn for (tenant_pages): its form
    carries it, and is rejected when another one has been chosen since. A form with `initial` values in its options is
    rejected when these have changed since it was drawn: it sends every field, the untouched ones too, and would take
    somebody else's change back. `template` may extend the page, with `context`.
    """
    staff_at(request)
    if tenant is not None and (refused := form_of_another_tenant(request, tenant)) is not None:
        return refused
    if (step_up := step_up_first(request, action)) is not None:
        return step_up
    form = form_class(request.POST if request.method == "POST" else None, **(form_options or {}))
    hidden = dict((context or {}).get("hidden") or {})
    if initial := (form_options or {}).get("initial"):
        now = _state(initial)
        # After an error it stays that of the page that was opened: what is typed there has not seen the change either.
        hidden[FORM_STATE] = request.POST.get(FORM_STATE, now)
        if hidden[FORM_STATE] != now:
            form.add_error(
                None, _("Somebody else has changed this since you opened the page: nothing was saved. Open it again.")
            )
    if request.method == "POST" and form.is_valid():
        try:
            report = act(form.cleaned_data)
        except InsufficientAuthentication:
            return to_step_up(request)
        except ApiError as error:
            note_rejection(request, error)
            _show(error, form)
        else:
            messages.success(request, report)
            return shown(request) if shown else HttpResponseRedirect(onward() if onward else back)
    return TemplateResponse(
        request,
        template,
        {
            **admin.site.each_context(request),
            **(context or {}),
            "hidden": hidden,
            "tenant": tenant,
            "title": title,
            "text": text,
            "form": form,
            "back": back,
            "verb": submit or title,
            "dangerous": dangerous,
        },
        status=200 if request.method != "POST" else 400,
    )
