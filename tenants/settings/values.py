"""The values of a tenant's settings: what applies, and the one function that validates changes."""

from collections.abc import Mapping
from typing import cast

from rest_framework import serializers

from identity_platform.api.errors import ValidationFailed
from tenants.settings.declarations import SETTINGS, EffectiveSettings
from tenants.settings.page_addresses import PageAddress, origin_of


def defaults(
    tenant_settings: Mapping[str, object], *, tenant_name: str = "", slug: str = "", domain: str | None = None
) -> dict[str, object]:
    """Return every setting with its default, which may depend on `tenant_settings`: those that the tenant has set."""
    location = PageAddress(slug, domain)
    return {name: setting.default.of(tenant_settings, tenant_name, location) for name, setting in SETTINGS.items()}


def effective(
    tenant_settings: Mapping[str, object], *, tenant_name: str = "", slug: str = "", domain: str | None = None
) -> EffectiveSettings:
    """Return every setting with the value that applies: the one in `tenant_settings`, or the default."""
    default_values = defaults(tenant_settings, tenant_name=tenant_name, slug=slug, domain=domain)
    values = cast(
        EffectiveSettings,
        default_values | {name: tenant_settings[name] for name in SETTINGS if tenant_settings.get(name) is not None},
    )
    if domain:
        # The hosted pages are there: a list without it would let users enroll passkeys nowhere.
        values["webauthn_origins"] = list(dict.fromkeys([*values["webauthn_origins"], origin_of(domain)]))
    return values


def merged(
    before: Mapping[str, object], changes: Mapping[str, object], *, by_operator: bool = True
) -> dict[str, object]:
    """Return the settings `before` with the `changes`; null restores the default.

    A setting that a newer release has stored stays as it is. A tenant's own admin cannot go beyond what the platform, or
    an operator, allows: otherwise a tenant could keep stolen tokens alive or use up the platform's messages.

    Raises ValidationFailed, which names every unknown setting and every invalid value.
    """
    problems: dict[str, list[str]] = {}
    after = {name: value for name, value in before.items() if name not in changes}
    for name, value in changes.items():
        if name not in SETTINGS:
            problems[f"settings.{name}"] = ["There is no such setting."]
        elif SETTINGS[name].operators_only and not by_operator:
            problems[f"settings.{name}"] = ["Only an operator can change this setting."]
        elif value is not None:
            try:
                after[name] = SETTINGS[name].field.run_validation(value)
            except serializers.ValidationError as problem:
                problems[f"settings.{name}"] = _messages(problem.detail)
                continue
            if SETTINGS[name].bounded and not by_operator and (says := _beyond(name, after[name], before)):
                problems[f"settings.{name}"] = [says]
    if after.get("mfa_policy") == "required" and after.get("enrollment_mode") == "bearer":
        # A user without a factor gets no access token, and so could never enroll a first factor.
        problems["settings.enrollment_mode"] = ["Where a factor is required, choose window or ticket."]
    if twice := sorted({*names_in(after, "app_metadata_claims")} & {*names_in(after, "metadata_claims")}):
        # A claim that applications rely on must not come from what a user writes.
        problems["settings.metadata_claims"] = [f"In app_metadata_claims too: {', '.join(twice)}. Name each key once."]
    if problems:
        raise ValidationFailed(details=problems)
    return after


def names_in(tenant_settings: Mapping[str, object], setting: str) -> list[str]:
    """Return the entries of a list that a tenant has set, without computing the other settings."""
    return cast(list[str], tenant_settings.get(setting) or [])


def _beyond(name: str, value: object, before: Mapping[str, object]) -> str:
    """Return what is wrong with a value beyond the platform's and the present one, or an empty string."""
    allowed = [cast(Mapping[str, object], effective(tenant_settings))[name] for tenant_settings in ({}, before)]
    if isinstance(value, int):
        most = max(limit for limit in allowed if isinstance(limit, int))
        return "" if value <= most else f"Send at most {most}: only an operator can set a longer lifetime."
    if None in allowed or not isinstance(value, list):
        return ""
    known = {code for codes in allowed if isinstance(codes, list) for code in codes}
    beyond = sorted(set(value) - known)
    return f"Only an operator can add {', '.join(beyond)}." if beyond else ""


def _messages(detail: object) -> list[str]:
    """Return the different messages about a value and its entries."""
    if not isinstance(detail, dict | list):
        return [str(detail)]
    details = detail.values() if isinstance(detail, dict) else detail
    return list(dict.fromkeys(message for inner in details for message in _messages(inner)))
