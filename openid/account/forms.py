"""Forms of the account pages."""

from django import forms
from django.utils.translation import gettext_lazy as _

from openid.pages.forms import EmailField, Line, PageForm
from userflow.branding.texts import named_languages


class ProfileForm(PageForm):
    """Name and language of the user."""

    name = Line(label=_("Name"), required=False, max_length=255, widget=forms.TextInput({"autocomplete": "name"}))
    language = forms.ChoiceField(
        label=_("Language of pages and mails"),
        required=False,
        choices=[("", _("As set in the browser")), *named_languages()],
    )


class NewEmailForm(PageForm):
    """A new address."""

    email = EmailField(autocomplete="email")


class PasskeyNameForm(PageForm):
    """The name of a passkey."""

    name = Line(label=_("Name of the passkey"), required=False, max_length=60)
