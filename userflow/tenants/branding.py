"""Read and change the branding of a tenant, for its admins and for operators."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from identity_platform.api.errors import ValidationFailed
from identity_platform.audit.writer import record_for_tenant
from identity_platform.row_checks import RowCheck, no_check
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.states import Purpose
from userflow.accounts.principals import Principal
from userflow.branding.colors import DARK, LIGHT, problem_of
from userflow.branding.logos import LogoRejected, safe_logo
from userflow.branding.models import Branding, Texts
from userflow.branding.reading import find_branding
from userflow.sessions.assurance import Action, require_assurance

_THEMES: Final = {"color_light": LIGHT, "color_dark": DARK}


def read_branding(*, tenant_id: UUID, purpose: Purpose = Purpose.READ) -> Branding:
    """Return what the tenant has set, without the bytes of the logo. Raises UnknownTenant, TenantSuspended, TenantBusy."""
    with in_tenant(tenant_id, purpose):
        return find_branding()


def update_branding(
    *, tenant_id: UUID, by: Principal, changes: Mapping[str, Any], check: RowCheck = no_check
) -> Branding:
    """Change the given fields; None or "" restores a default. In `texts` each language is replaced as a whole.

    `logo` is an image in base64. Raises ValidationFailed (a color without contrast, an image that is none or too large),
    UnknownTenant, TenantSuspended, TenantBusy, InsufficientAuthentication.
    """
    require_assurance(Action.CHANGE_TENANT_SETTINGS, by)
    checked = checked_changes(changes)
    with in_tenant(tenant_id), tenant_atomic():
        Branding.objects.bulk_create([Branding()], ignore_conflicts=True)
        # The lock prevents lost updates of concurrent changes of texts.
        branding = Branding.objects.select_for_update().get()
        check()
        apply_changes(branding, checked)
        branding.save()
        if changes:
            record_for_tenant("branding.updated", target=("tenant", tenant_id), details={"changed": sorted(changes)})
    return branding


def checked_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that fields of `Branding` get. Raises ValidationFailed, which names every invalid field."""
    problems: dict[str, list[str]] = {}
    values = {name: value if value is not None else "" for name, value in changes.items()}
    for name, theme in _THEMES.items():
        if values.get(name) and (problem := problem_of(values[name], theme)):
            problems[name] = [problem]
    if "logo" in values:
        try:
            values |= _logo_fields(values["logo"])
        except LogoRejected as rejected:
            problems["logo"] = [str(rejected)]
    if problems:
        raise ValidationFailed(details=problems)
    return values


def apply_changes(branding: Branding, checked: Mapping[str, Any]) -> None:
    """Set checked values. The caller saves them, or shows a preview."""
    for name, value in checked.items():
        setattr(branding, name, _merged(branding.texts, None if value == "" else value) if name == "texts" else value)


def _merged(before: Texts, changes: Mapping[str, Mapping[str, str] | None] | None) -> Texts:
    if changes is None:
        return {}
    after = {language: texts for language, texts in before.items() if language not in changes}
    for language, texts in changes.items():
        if filled_texts := {name: text for name, text in (texts or {}).items() if text}:
            after[language] = filled_texts
    return after


def _logo_fields(encoded: str | bytes) -> dict[str, Any]:
    """Return the columns of a logo. Raises LogoRejected."""
    if not encoded:
        return {"logo": None, "logo_type": "", "logo_digest": ""}
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as problem:
        raise LogoRejected("Send the image in base64 (RFC 4648 section 4).") from problem
    logo = safe_logo(data)
    return {"logo": logo.data, "logo_type": logo.media_type, "logo_digest": logo.digest}
