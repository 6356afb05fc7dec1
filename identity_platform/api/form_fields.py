"""Fields of HTML forms that take what people type and paste. Their values are what the API's fields return.

Subclasses define the text of the error `invalid`, in the catalogue of their app.
"""

from typing import Any

from django import forms

from identity_platform.api.email_addresses import LONGEST_ADDRESS, AddressInvalid, email_address
from identity_platform.api.typed_text import six_digits

# Room for what surrounds the digits in a message or a clipboard.
LONGEST_TYPED_CODE = 64


class AddressField(forms.CharField):
    """An e-mail address, as the API stores it."""

    widget = forms.EmailInput

    def __init__(self, *, max_length: int = LONGEST_ADDRESS, **options: Any) -> None:
        super().__init__(max_length=max_length, **options)

    def clean(self, value: Any) -> str:
        """Return the address, or "" for none where none is required. Raises ValidationError."""
        text = super().clean(value)
        try:
            return email_address(text) if text else ""
        except AddressInvalid as problem:
            raise forms.ValidationError(self.error_messages["invalid"], code="invalid") from problem


class SixDigitsField(forms.CharField):
    """A code of six digits, in any script and with blanks as apps and messages show them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=LONGEST_TYPED_CODE, **options)

    def clean(self, value: Any) -> str:
        """Return the six ASCII digits, or "" for none where none is required. Raises ValidationError."""
        text = super().clean(value)
        code = six_digits(text) if text else ""
        if code is None:
            raise forms.ValidationError(self.error_messages["invalid"], code="invalid")
        return code
