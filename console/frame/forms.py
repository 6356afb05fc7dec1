"""Forms that are validated by the serializers of the API, and their fields."""

import json
from datetime import datetime
from typing import Any, ClassVar

from django import forms
from django.utils.translation import gettext_lazy as _
from rest_framework.serializers import Serializer
from unfold.widgets import (
    INPUT_CLASSES,
    UnfoldAdminEmailInputWidget,
    UnfoldAdminExpandableTextareaWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from identity_platform.api.errors import MalformedBody
from identity_platform.api.parsers import json_object

LONGEST_REASON = 500
# The validated values of a form, or the context of a template.
Fields = dict[str, Any]


class ApiForm(forms.Form):
    """A form that `serializer` validates; its messages are shown at the fields of the same names."""

    serializer: ClassVar[type[Serializer[object]]]

    def body(self, fields: Fields) -> Fields:
        """Return the body of the API for the fields."""
        return fields

    def clean(self) -> Fields:
        """What the action takes; ValidationErrors at the fields for what the API would reject."""
        fields: Fields = super().clean() or self.cleaned_data
        if self.errors:
            return fields
        asked = self.serializer(data=self.body(fields))
        if asked.is_valid():
            return dict(asked.validated_data)
        for name, problems in asked.errors.items():
            self.add_error(name if name in self.fields else None, _sentences(problems))
        return fields


def _sentences(problems: Any) -> list[str]:
    if isinstance(problems, dict):
        return [sentence for part in problems.values() for sentence in _sentences(part)]
    if isinstance(problems, list):
        return [sentence for part in problems for sentence in _sentences(part)]
    return [str(problems)]


class Line(forms.CharField):
    """One line of text."""

    def __init__(self, **options: Any) -> None:
        super().__init__(widget=UnfoldAdminTextInputWidget(), **options)


class Address(forms.CharField):
    """An e-mail address, validated by the serializer."""

    def __init__(self, **options: Any) -> None:
        super().__init__(widget=UnfoldAdminEmailInputWidget(), **options)


class Paragraph(forms.CharField):
    """Text of several lines. Browsers send CR LF, which is stored as LF."""

    def __init__(self, **options: Any) -> None:
        super().__init__(widget=options.pop("widget", UnfoldAdminExpandableTextareaWidget()), **options)

    def to_python(self, value: Any) -> Any:
        """The text."""
        text = super().to_python(value)
        return text.replace("\r\n", "\n") if isinstance(text, str) else text


class JsonObject(Paragraph):
    """A JSON object."""

    def prepare_value(self, value: Any) -> Any:
        """Return the object as text, and entered text unchanged."""
        return value if isinstance(value, str) else json.dumps(value or {}, indent=2, ensure_ascii=False)

    def to_python(self, value: Any) -> Any:
        """Return the object. Raises ValidationError."""
        text = super().to_python(value) or "{}"
        try:
            # The API's reader, so that the console stores nothing that the API would reject.
            return json_object(text.encode("utf-8", "surrogatepass"))
        except MalformedBody as problem:
            raise forms.ValidationError(_('Type a JSON object, such as {"team": "payments"}.')) from problem


class Lines(Paragraph):
    """A list with one entry per line."""

    def prepare_value(self, value: Any) -> Any:
        """Return one entry per line."""
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        """Return the entries without empty ones."""
        return [line.strip() for line in str(super().to_python(value) or "").splitlines() if line.strip()]


class Moment(forms.DateTimeField):
    """A time in UTC, with the date picker of the browser."""

    def __init__(self, **options: Any) -> None:
        widget = forms.DateTimeInput(
            attrs={"type": "datetime-local", "class": " ".join(INPUT_CLASSES)}, format="%Y-%m-%dT%H:%M"
        )
        super().__init__(widget=widget, **options)


def as_sent(value: datetime | None) -> str | None:
    """Return a time as in a body of the API."""
    return value.isoformat() if value is not None else None


class Number(forms.IntegerField):
    """A whole number."""

    def __init__(self, **options: Any) -> None:
        super().__init__(widget=UnfoldAdminIntegerFieldWidget(), **options)


class Pick(forms.ChoiceField):
    """One of several choices."""

    def __init__(self, **options: Any) -> None:
        super().__init__(widget=UnfoldAdminSelectWidget(), **options)


class Tick(forms.BooleanField):
    """A checkbox."""

    def __init__(self, **options: Any) -> None:
        super().__init__(widget=UnfoldBooleanWidget(), required=False, **options)


class Reason(forms.Form):
    """The reason of an audited change."""

    reason = Line(label=_("Reason"), max_length=LONGEST_REASON, help_text=_("Recorded in the audit trail."))
