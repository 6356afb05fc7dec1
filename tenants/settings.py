"""What a tenant may set, and the one function that validates it."""

import re
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from identity_platform.api.errors import ValidationFailed
from identity_platform.environment import ANDROID_APP

HOSTNAME = re.compile(r"(?=.{1,253}\Z)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# A page of the tenant's own application; what it is to work on comes behind the `#`.
PAGE = re.compile(r"(https://[a-z0-9.-]+|http://localhost)(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?(\?[A-Za-z0-9._~=&-]*)?")
NO_PAGE: Final = "Send the https address of a page, without a fragment."
ORIGIN = re.compile(rf"https://[a-z0-9.-]+(:[0-9]{{1,5}})?|http://localhost(:[0-9]{{1,5}})?|{ANDROID_APP}")
COUNTRY = re.compile(r"[A-Z]{2}")
# Signing keys verify for as long after they have stopped to sign.
LONGEST_REFRESH_SECONDS: Final = 90 * 86_400


def _text(longest: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        good = isinstance(value, str) and 0 < len(value.strip()) <= longest and value.isprintable()
        return None if good else f"Send a text of 1 to {longest} characters."

    return check


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "Send true or false."


def _whole(least: int, most: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        good = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return None if good else f"Send a whole number between {least} and {most}."

    return check


def _one_of(*choices: str) -> Callable[[Any], str | None]:
    return lambda value: None if value in choices else f"Send one of {', '.join(choices)}."


def _matching(form: re.Pattern[str], says: str) -> Callable[[Any], str | None]:
    return lambda value: None if isinstance(value, str) and form.fullmatch(value) else says


def _list_of(form: re.Pattern[str], says: str, most: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        good = isinstance(value, list) and len(value) <= most and len(set(map(str, value))) == len(value)
        return None if good and all(isinstance(v, str) and form.fullmatch(v) for v in value) else says

    return check


SETTINGS: Final[dict[str, Callable[[Any], str | None]]] = {
    "issuer_name": _text(64),
    "webauthn_rp_id": _matching(HOSTNAME, "Send a domain in lower case, without scheme and port."),
    "webauthn_origins": _list_of(
        ORIGIN, "Send a list of at most 20 https origins (an Android app: android:apk-key-hash:…).", 20
    ),
    # RFC-like floor of NIST SP 800-63B: 8, and 15 where the password is the only factor.
    "password_min_length": _whole(8, 64),
    "password_reset_url": _matching(PAGE, NO_PAGE),
    "email_verification_url": _matching(PAGE, NO_PAGE),
    "invitation_url": _matching(PAGE, NO_PAGE),
    "access_token_seconds": _whole(60, 86_400),
    "refresh_token_seconds": _whole(3_600, LONGEST_REFRESH_SECONDS),
    "mfa_policy": _one_of("optional", "required"),
    "sms_countries": _list_of(COUNTRY, "Send a list of ISO 3166 two-letter codes.", 250),
    "self_registration": _flag,
    "email_verification": _one_of("off", "required"),
    "enrollment_mode": _one_of("window", "ticket", "bearer"),
}


def validated(stated: dict[str, Any]) -> dict[str, Any]:
    """The settings, if each is known and of its form; ValidationFailed names those that are not.

    A setting that is null is taken back to the platform's default, so it does not appear in the result.
    """
    problems: dict[str, list[str]] = {}
    for name, value in stated.items():
        check = SETTINGS.get(name)
        says = "There is no such setting." if check is None else (None if value is None else check(value))
        if says:
            problems[f"settings.{name}"] = [says]
    if stated.get("mfa_policy") == "required" and stated.get("enrollment_mode") == "bearer":
        # Who has no factor gets no token, and without a token could enrol none: nobody new would ever get in.
        problems["settings.enrollment_mode"] = ["Where a factor is required, choose window or ticket."]
    if problems:
        raise ValidationFailed(details=problems)
    return {name: value for name, value in stated.items() if value is not None}


# Takes the tenant, its settings before and after the change, and raises a refusal.
ChangeCheck = Callable[[UUID, dict[str, Any], dict[str, Any]], None]
_change_checks: list[ChangeCheck] = []


def check_changes_with(check: ChangeCheck) -> None:
    """Ask `check` before settings change. Rooms above know what hangs on a setting; this one cannot import them."""
    if check not in _change_checks:
        _change_checks.append(check)


def check_change(tenant_id: UUID, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Ask every check whether the settings may change; the first refusal stands."""
    for check in _change_checks:
        check(tenant_id, before, after)
