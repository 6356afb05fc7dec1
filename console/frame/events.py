"""The search of audit events, on the pages of the platform and of a tenant."""

from django import forms
from django.utils.translation import gettext_lazy as _

from console.frame.forms import Line, Moment
from userflow.audit.actions import Filters


class EventSearch(forms.Form):
    """The filters; an empty one matches everything. `before` is the number of the event that the page ends before."""

    action = Line(label=_("Action, such as signin.refused"), required=False, max_length=64)
    actor = Line(label=_("Actor (id)"), required=False, max_length=64)
    target = Line(label=_("Target (id)"), required=False, max_length=64)
    since = Moment(label=_("From (UTC)"), required=False)
    until = Moment(label=_("Before (UTC)"), required=False)
    before = forms.IntegerField(required=False, min_value=1, max_value=2**62, widget=forms.HiddenInput)

    def filters(self) -> Filters:
        """Return the filters of the action."""
        return Filters(**{name: self.cleaned_data.get(name) or None for name in Filters.__slots__})

    def asked(self) -> dict[str, str]:
        """Return the filled filters for the path of another page."""
        return {name: str(self.data[name]) for name in self.fields if name != "before" and self.data.get(name)}
