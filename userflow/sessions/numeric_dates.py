"""Times in the tokens of others (NumericDate, RFC 7519 section 2)."""

from typing import Any, Final, TypeGuard

# Greater ones are no times, and those of hundreds of digits cannot be compared with one.
_END: Final = 2**53


def is_numeric_date(value: Any) -> TypeGuard[int | float]:
    """Return whether a claim is a number of seconds: neither text, which PyJWT takes too, nor NaN, which equals no limit."""
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value < _END
