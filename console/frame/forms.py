"""Forms that are validated by the serializers of the API, and their fields."""

import json
from collections.abc import Iterable
from typing import ClassVar, TypedDict

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict
from django.utils.translation import gettext_lazy as _
from rest_framework.serializers import Serializer
from unfold import widgets

from console.frame.access import Context
from console.frame.records import Text
from identity_platform.api.errors import MalformedBody
from identity_platform.api.form_fields import AddressField
from identity_platform.api.parsers import json_object

LONGEST_REASON = 500


class FormOptions(TypedDict, total=False):
    data: QueryDict | None
    files: "MultiValueDict[str, UploadedFile[bytes]] | None"
    initial: Context | None
    prefix: str | None


class ApiForm(forms.Form):
    """A form that `serializer` validates; its messages are shown at the fields of the same names."""

    serializer: ClassVar[type[Serializer[object]]]

    def body(self) -> Context:
        return self.cleaned_data

    def clean(self) -> Context:
        """Return what the action takes. Adds errors at the fields for what the API would reject."""
        super().clean()
        if self.errors:
            return self.cleaned_data
        serializer = self.serializer(data=self.body())
        if serializer.is_valid():
            return dict(serializer.validated_data)
        for name, problems in serializer.errors.items():
            self.add_error(name if name in self.fields else None, _sentences(problems))
        return self.cleaned_data


def _sentences(problems: object) -> list[str]:
    if isinstance(problems, dict):
        return [sentence for part in problems.values() for sentence in _sentences(part)]
    if isinstance(problems, list):
        return [sentence for part in problems for sentence in _sentences(part)]
    return [str(problems)]


def set_choices(form: forms.Form, name: str, choices: Iterable[tuple[str, Text]]) -> None:
    """Set the choices of a field that depend on the reader or on the rows of a tenant."""
    field = form.fields[name]
    assert isinstance(field, forms.ChoiceField)
    field.choices = list(choices)
    if isinstance(field, Boxes) and not field.choices:
        field.help_text = _("Nothing to select yet.")


def shown_value(field: forms.Field, value: object) -> object:
    """Return the value of a field for readers: a choice by its label, an object as JSON."""
    labels = {str(key): label for key, label in getattr(field, "choices", ())}
    match value:
        case dict():
            return json.dumps(value, ensure_ascii=False) if value else ""
        case list():
            return [labels.get(str(entry), entry) for entry in value]
        case _:
            return labels.get("" if value is None else str(value), value)


class Line(forms.CharField):
    widget = widgets.UnfoldAdminTextInputWidget


class Address(AddressField):
    """An e-mail address."""

    default_error_messages = {"invalid": _("Enter an e-mail address such as name@example.com.")}
    widget = widgets.UnfoldAdminEmailInputWidget


class NewPassword(forms.CharField):
    """A password that the browser does not fill in."""

    widget = widgets.UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"})


class Paragraph(forms.CharField):
    """Text of several lines. Browsers send CR LF, which is stored as LF."""

    widget = widgets.UnfoldAdminExpandableTextareaWidget

    def to_python(self, value: object) -> str | None:
        text = super().to_python(value)
        return text.replace("\r\n", "\n") if text else text


class JsonObject(forms.Field):
    widget = widgets.UnfoldAdminExpandableTextareaWidget

    def prepare_value(self, value: object) -> str:
        """Return the object as text, and entered text unchanged."""
        return value if isinstance(value, str) else json.dumps(value or {}, indent=2, ensure_ascii=False)

    def to_python(self, value: object) -> dict[str, object]:
        """Return the object. Raises ValidationError."""
        try:
            # The API's reader, so that the console stores nothing that the API would reject.
            return json_object((str(value or "").strip() or "{}").encode("utf-8", "surrogatepass"))
        except MalformedBody as problem:
            raise forms.ValidationError(_('Type a JSON object, such as {"team": "payments"}.')) from problem


class Lines(forms.Field):
    """A list with one entry per line."""

    widget = widgets.UnfoldAdminExpandableTextareaWidget

    def prepare_value(self, value: object) -> object:
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: object) -> list[str]:
        return [line.strip() for line in str(value or "").splitlines() if line.strip()]

    def has_changed(self, initial: object, data: object) -> bool:
        """Return whether other entries are sent: none stored and none sent are the same."""
        return (initial or []) != self.to_python(data)


class Moment(forms.DateTimeField):
    """A time in UTC, with the date picker of the browser."""

    widget = forms.DateTimeInput(
        attrs={"type": "datetime-local", "class": " ".join(widgets.INPUT_CLASSES)}, format="%Y-%m-%dT%H:%M"
    )


class Number(forms.IntegerField):
    widget = widgets.UnfoldAdminIntegerFieldWidget


class Pick(forms.ChoiceField):
    widget = widgets.UnfoldAdminSelectWidget

    def has_changed(self, initial: object, data: object) -> bool:
        """Return whether another choice is sent: the initial value may be none, or a flag."""
        return super().has_changed("" if initial is None else str(self.prepare_value(initial)), data)


class Boxes(forms.MultipleChoiceField):
    widget = widgets.UnfoldAdminCheckboxSelectMultipleWidget


class Tick(forms.BooleanField):
    widget = widgets.UnfoldBooleanWidget

    def __init__(self, *, label: Text, help_text: Text = "", initial: bool = False) -> None:
        super().__init__(label=label, help_text=help_text, initial=initial, required=False)


class Reason(forms.Form):
    reason = Line(
        label=_("Reason"),
        max_length=LONGEST_REASON,
        help_text=_("Recorded in the audit log, which the admins of the tenant can read. Do not enter personal data."),
    )
