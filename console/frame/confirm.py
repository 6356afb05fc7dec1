"""Pages that change something: they say what will happen, ask, call one action and report its result."""

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, Unpack, cast

from django import forms
from django.contrib import admin, messages
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.views.generic import FormView
from unfold.widgets import UnfoldAdminTextInputWidget

from console.frame.access import Context, Page, Staff, require, step_up_first, to_step_up
from console.frame.forms import FormOptions, shown_value
from console.frame.records import Table, Text, secret_page
from console.frame.scope import page_tenant, tenant_at
from console.frame.tenant_pages import form_of_another_tenant, render_in_tenant
from identity_platform.api.errors import ApiError
from identity_platform.api.handlers import note_rejection
from identity_platform.api.views import Arguments
from tenants.models import Tenant
from userflow.errors import InsufficientAuthentication
from userflow.sessions.assurance import Action

# The hidden field with a hash of the values that the form was rendered with.
FORM_STATE: Final = "form_state"

if TYPE_CHECKING:
    AnyFormView = FormView[forms.Form]
else:
    # Generic for the type checker only.
    AnyFormView = FormView

Row = TypeVar("Row", bound=Model)


class FormIsStale(Exception):
    """The values have changed since the form was rendered."""


class TypedName(forms.Form):
    """A form that requires the name of the object to be typed, so that one click never deletes the wrong one."""

    typed = forms.CharField(
        max_length=255, strip=True, widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"})
    )

    def __init__(self, *, confirmation_text: str, **options: Unpack[FormOptions]) -> None:
        super().__init__(**options)
        self.confirmation_text = confirmation_text
        self.fields["typed"].label = _("Type %(wanted)s to confirm") % {"wanted": confirmation_text}

    def clean_typed(self) -> str:
        typed = str(self.cleaned_data["typed"])
        if typed != self.confirmation_text:
            raise forms.ValidationError(_("This is not %(wanted)s.") % {"wanted": self.confirmation_text})
        return typed

    def clean(self) -> Context:
        """Return the other fields: the typed name is no argument of the action."""
        return {name: value for name, value in self.cleaned_data.items() if name != "typed"}


class ConfirmView(AnyFormView):
    """Ask, then call one action.

    A subclass states the permissions, the texts and the action: `call` takes `arguments` and the fields of the form, and
    `done` reports success. A page whose action takes something else has an `act` of its own.

    The checks run in this order: permissions (403), the rows that the path names (404), the tenant of the form (409), the
    authentication that the action needs (re-authentication page), the form, and the action itself. An error of the action
    is shown at the form, with everything that was typed. A form is rejected if its `version` has changed since it was
    rendered: it sends the untouched fields too, and would revert the other change. The page then shows the newer values.
    An action that locks the row checks it again under the lock, for two forms that are sent at the same moment.
    """

    permissions: ClassVar[tuple[str, ...]]
    operators_only: ClassVar[bool] = False
    # Whether the action takes `check` (RowCheck).
    checks_locked_row: ClassVar[bool] = False
    # A staticmethod, so that the view is not its first argument.
    call: ClassVar[Callable[..., Any]]
    # `%(name)s` in `done`, the title and the text is replaced by the values of `names`.
    done: Text
    title: Text = ""
    text: Text = ""
    # The label of the button; the title unless stated.
    submit: Text = ""
    # Whether the button is red.
    dangerous: bool = True
    # The row of the assurance table; None for an action that has none.
    action: Action | None = None
    # The tenant whose id the form carries, if the page is about the chosen tenant.
    tenant: Tenant | None = None
    # The list that the page belongs to. The Back button of a page about one row leads to the row's page instead.
    list_page: ClassVar[str]
    # The field that names the row of the page in texts.
    named_by: ClassVar[str] = "name"
    form_class: type[forms.Form] = forms.Form
    template_name = "console/confirm.html"
    http_method_names = ["get", "head", "post"]

    staff: Staff
    # Whether the values have changed since the sent form was rendered.
    is_stale = False

    @classmethod
    def as_view(cls, **initkwargs: object) -> Page:
        """Return the page. Its responses are HttpResponses, which Django's own annotation does not say."""
        return cast(Page, super().as_view(**initkwargs))

    def load(self) -> None:
        """Load the rows that the path names. Raises Http404 or a NotFound error."""

    def names(self) -> Context:
        """Return the values for the placeholders of the title and the text."""
        return {"tenant": self.tenant.name} if self.tenant else {}

    def version(self) -> Context:
        """Return the stored values that must be the same when the form is sent as when it was rendered."""
        return self.get_initial()

    def hidden_fields(self) -> dict[str, str]:
        """Return further hidden fields of the form."""
        return {}

    def get_back_url(self) -> str:
        """Return the page that the Back button leads to."""
        return reverse(self.list_page)

    def arguments(self) -> Arguments:
        """Return the arguments of the action beside the fields of the form."""
        tenant = {"tenant_id": self.tenant.pk} if self.tenant else {}
        return {**tenant, "by": self.staff.principal}

    def act(self, form: forms.Form) -> Text:
        """Call the action with the valid form; return the sentence that reports success."""
        self.keep(self.call_action(**form.cleaned_data))
        return str(self.done) % self.names()

    def call_action(self, **fields: Any) -> Any:
        """Call the action with these fields; return its result."""
        check = {"check": self.check_version} if self.checks_locked_row else {}
        return self.call(**self.arguments(), **fields, **check)

    def check_version(self) -> None:
        """Load the rows again, which the action has locked. Raises FormIsStale."""
        self.load()
        if FORM_STATE in self.hidden and self.hidden[FORM_STATE] != _hash_of(self.version()):
            raise FormIsStale

    def changed_fields(self, form: forms.Form) -> Arguments:
        """Return the fields of the valid form that differ from their initial values."""
        initial, fields = self.get_initial(), form.cleaned_data
        return {name: fields[name] for name in initial if name in fields and fields[name] != initial[name]}

    def keep(self, result: Any) -> None:
        """Keep what the response needs of the result of the action."""

    def get_success_url(self) -> str:
        return self.get_back_url()

    def respond(self) -> HttpResponse:
        """Return the response after success: a redirect, or the page of a secret that is shown once."""
        return HttpResponseRedirect(self.get_success_url())

    def dispatch(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        self.staff = require(request, *self.permissions, operators_only=self.operators_only)
        return self.run()

    def run(self) -> HttpResponse:
        """Respond to a request whose permissions are checked."""
        self.load()
        self._check_the_bar()
        if self.tenant is not None and (rejected := form_of_another_tenant(self.request, self.tenant)) is not None:
            return rejected
        if (step_up := step_up_first(self.request, self.action)) is not None:
            return step_up
        return cast(HttpResponse, super().dispatch(self.request))

    def _check_the_bar(self) -> None:
        """Raise RuntimeError unless the bar of this page names the tenant that its action changes."""
        changes, shown = self.arguments().get("tenant_id"), page_tenant(self.request)
        if changes is not None and (shown is None or shown.pk != changes):
            raise RuntimeError(f"The action changes tenant {changes}, and the bar names {shown}.")

    def get_form(self, form_class: type[forms.Form] | None = None) -> forms.Form:
        form = super().get_form(form_class)
        self.hidden = self.hidden_fields()
        if version := self.version():
            now = _hash_of(version)
            # After an error it stays the hash of the page that was opened: what is typed there predates the change too.
            self.hidden[FORM_STATE] = self.request.POST.get(FORM_STATE, now)
            self.is_stale = self.hidden[FORM_STATE] != now
            if self.is_stale:
                form.add_error(
                    None,
                    _("This was changed after you opened the page, so nothing was saved. Open the page again."),
                )
        return form

    def form_valid(self, form: forms.Form) -> HttpResponse:
        try:
            report = self.act(form)
        except InsufficientAuthentication:
            return to_step_up(self.request)
        except FormIsStale:
            return self.form_invalid(self.get_form())
        except ApiError as error:
            note_rejection(self.request, error)
            _show(error, form)
            return self.form_invalid(form)
        messages.success(self.request, str(report))
        return self.respond()

    def form_invalid(self, form: forms.Form) -> HttpResponse:
        # The cursor goes where the correction is needed; an error of the whole form is focused by the template.
        first = next((name for name in form.fields if name in form.errors), None)
        if first is not None and not form.non_field_errors():
            form.fields[first].widget.attrs["autofocus"] = True
        return self.render_to_response(self.get_context_data(form=form), status=400)

    def get_context_data(self, **kwargs: object) -> Context:
        names = self.names()
        title = str(self.title) % names
        context = super().get_context_data(**kwargs)
        return {
            **admin.site.each_context(self.request),
            **context,
            "hidden": self.hidden,
            "tenant": self.tenant,
            "title": title,
            "text": str(self.text) % names,
            "back": self.get_back_url(),
            "verb": str(self.submit) or title,
            "dangerous": self.dangerous,
            "is_stale": self.is_stale,
            "newer": _newer_values(context["form"]) if self.is_stale else None,
        }


class ChosenTenantConfirmView(ConfirmView):
    """A page that changes something of the chosen tenant in the global database."""

    tenant: Tenant

    def load(self) -> None:
        self.tenant = tenant_at(self.request)


class TenantConfirmView(ConfirmView):
    """A page that changes something in the chosen tenant's database, which is entered before its rows are loaded."""

    tenant: Tenant

    def run(self) -> HttpResponse:
        return render_in_tenant(self.request, self._run_in)

    def _run_in(self, tenant: Tenant) -> HttpResponse:
        self.tenant = tenant
        return super().run()


class RowView(ConfirmView, Generic[Row]):
    """A page that changes one row. The Back button leads to the row's own page."""

    page: ClassVar[str]
    # The name of the row's id, in the path and for the action.
    key: ClassVar[str]
    # Takes the request and the id, and returns the row. Raises Http404 or a NotFound error.
    lookup: ClassVar[Callable[..., Any]]
    # Attributes of the row that its page depends on, besides the initial values of the form.
    guarded_fields: ClassVar[tuple[str, ...]] = ()
    row: Row

    def version(self) -> Context:
        return {**super().version(), **{name: getattr(self.row, name) for name in self.guarded_fields}}

    def find(self) -> Row:
        """Return the row that the path names."""
        return cast(Row, self.lookup(self.request, self.kwargs[self.key]))

    def arguments(self) -> Arguments:
        return {**super().arguments(), self.key: self.row.pk}

    def load(self) -> None:
        super().load()
        self.row = self.find()

    def row_name(self) -> str:
        """Return what the row is called."""
        return str(getattr(self.row, self.named_by))

    def names(self) -> Context:
        name = self.row_name()
        return {**super().names(), "name": name, self.named_by: name}

    def get_back_url(self) -> str:
        return reverse(self.page, args=[self.row.pk])

    def get_context_data(self, **kwargs: object) -> Context:
        return {**super().get_context_data(**kwargs), "crumb": self.row_name()}


class CreateView(ConfirmView, Generic[Row]):
    """A page that creates a row and goes to the row's page."""

    page: ClassVar[str]
    submit: Text = _("Save")
    dangerous = False
    row: Row

    def keep(self, result: Any) -> None:
        super().keep(result)
        # An action that creates a secret too returns both.
        self.row = result[0] if isinstance(result, tuple) else result

    def get_success_url(self) -> str:
        return reverse(self.page, args=[self.row.pk])


class EditView(RowView[Row]):
    """A page that changes fields of a row. Only changed fields are sent to the action, as `changes`."""

    checks_locked_row = True
    submit = _("Save")
    dangerous = False

    def get_initial(self) -> Context:
        return {name: getattr(self.row, name) for name in self.form_class.base_fields}

    def update(self, changes: Arguments) -> Text:
        """Call the action; return the sentence that reports success."""
        self.keep(self.call_action(changes=changes))
        return self.done

    def act(self, form: forms.Form) -> Text:
        changes = self.changed_fields(form)
        return self.update(changes) if changes else _("Nothing was changed.")


class EmailEditView(EditView[Row]):
    """A page that changes fields of a user, of which a new e-mail address applies once it is verified."""

    def update(self, changes: Arguments) -> Text:
        changed = self.call_action(changes=changes)
        if changes.get("email", changed.email) != changed.email:
            return _("The new address applies once it is verified by the mail that was sent to it.")
        return self.done


class DeleteView(RowView[Row]):
    """A page that deletes a row and goes to the list."""

    def get_success_url(self) -> str:
        return reverse(self.list_page)


class TypedDeleteView(DeleteView[Row]):
    """A page that deletes a row whose name must be typed."""

    form_class = TypedName

    def get_form_kwargs(self) -> Context:
        return {**super().get_form_kwargs(), "confirmation_text": getattr(self.row, self.named_by)}


class SecretView(ConfirmView, Generic[Row]):
    """A page that shows a secret of its row once after success, if there is one. Its action returns the row and the secret."""

    page: ClassVar[str]
    row: Row
    secret: str | None

    def keep(self, result: Any) -> None:
        super().keep(result)
        self.secret = result[1]

    def respond(self) -> HttpResponse:
        if self.secret is None:
            return super().respond()
        back = reverse(self.page, args=[self.row.pk])
        return secret_page(self.request, of=getattr(self.row, self.named_by), secret=self.secret, back=back)


def _show(error: ApiError, form: forms.Form) -> None:
    """Show each problem at its field, and above the form the error itself and problems of no field."""
    details = {name: told for name, told in (error.details or {}).items() if isinstance(told, list)}
    at_fields = {name.partition("[")[0]: told for name, told in details.items()}
    if not at_fields or not at_fields.keys() <= form.fields.keys():
        form.add_error(None, error.text)
    for name, told in at_fields.items():
        form.add_error(name if name in form.fields else None, told)


def _hash_of(version: Context) -> str:
    return hashlib.sha256(repr(sorted(version.items())).encode()).hexdigest()[:32]


def _newer_values(form: forms.Form) -> Table:
    """Return the stored values that differ from what is typed in the form."""
    names = [name for name in form.changed_data if name in form.initial and not form[name].is_hidden]
    return Table(
        title=_("Stored values that differ from the form"),
        headers=(_("Field"), _("Stored value")),
        rows=[(form[name].label, shown_value(form.fields[name], form.initial[name])) for name in names],
        empty="",
    )
