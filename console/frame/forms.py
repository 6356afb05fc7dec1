"""Forms of the console: typed in as staff do it, checked by the very serializers that check the API's bodies."""

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
    """A form whose rules are those of `serializer`: its messages stand at the fields of the same names."""

    serializer: ClassVar[type[Serializer[Any]]]

    def members(self, typed: dict[str, Any]) -> dict[str, Any]:
        """The body that the API would be sent for what was typed."""
        return typed

    def clean(self) -> dict[str, Any]:
        """What the action takes; ValidationErrors at the fields for what the API would reject."""
        typed: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return typed
        asked = self.serializer(data=self.members(typed))
        if asked.is_valid():
            return dict(asked.validated_data)
        for member, problems in asked.errors.items():
            self.add_error(member if member in self.fields else None, _sentences(problems))
        return typed


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
    """An e-mail address; whether it is one says the API's own rule."""

    def __init__(self, **options: Any) -> None:
        super().__init__(widget=UnfoldAdminEmailInputWidget(), **options)


class Paragraph(forms.CharField):
    """Text of several lines, with the line ends that everybody else writes: browsers send CR LF."""

    def __init__(self, **options: Any) -> None:
        super().__init__(widget=options.pop("widget", UnfoldAdminExpandableTextareaWidget()), **options)

    def to_python(self, value: Any) -> Any:
        """The text."""
        text = super().to_python(value)
        return text.replace("\r\n", "\n") if isinstance(text, str) else text


class Members(Paragraph):
    """A JSON object."""

    def prepare_value(self, value: Any) -> Any:
        """The object as text; what was typed as it was typed."""
        return value if isinstance(value, str) else json.dumps(value or {}, indent=2, ensure_ascii=False)

    def to_python(self, value: Any) -> Any:
        """The object; ValidationError for what is none."""
        text = super().to_python(value) or "{}"
        try:
            # The API's own reader: what it takes in one way only can be stored and handed out again.
            return json_object(text.encode("utf-8", "surrogatepass"))
        except MalformedBody as problem:
            raise forms.ValidationError(_('Type a JSON object, such as {"team": "payments"}.')) from problem


class Lines(Paragraph):
    """A list, one entry a line."""

    def prepare_value(self, value: Any) -> Any:
        """The entries below each other."""
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        """The entries without empty ones."""
        return [line.strip() for line in str(super().to_python(value) or "").splitlines() if line.strip()]


class Moment(forms.DateTimeField):
    """A time in UTC, picked with the browser's own means."""

    def __init__(self, **options: Any) -> None:
        widget = forms.DateTimeInput(
            attrs={"type": "datetime-local", "class": " ".join(INPUT_CLASSES)}, format="%Y-%m-%dT%H:%M"
        )
        super().__init__(widget=widget, **options)


def as_sent(value: datetime | None) -> str | None:
    """A time as the API is sent it."""
    return value.isoformat() if value is not None else None


class Number(forms.IntegerField):
    """A whole number."""

    def __init__(self, **options: Any) -> None:
        super().__init__(widget=UnfoldAdminIntegerFieldWidget(), **options)


class Pick(forms.ChoiceField):
    """One of a few."""

    def __init__(self, **options: Any) -> None:
        super().__init__(widget=UnfoldAdminSelectWidget(), **options)


class Tick(forms.BooleanField):
    """Yes or no; left out is no."""

    def __init__(self, **options: Any) -> None:
        super().__init__(widget=UnfoldBooleanWidget(), required=False, **options)


class Reason(forms.Form):
    """Why something is done that the audit trail is asked about later."""

    reason = Line(label=_("Reason"), max_length=LONGEST_REASON, help_text=_("It is written to the audit trail."))
