"""The second factors of the signed-in user, as the account's pages show them."""

from mfa.factors import TOTP, FactorList, list_factors
from mfa.webauthn.models import UNNAMED
from openid.pages.proofs import WAYS
from userflow.accounts.principals import Principal
from userflow.accounts.realms import END_USERS


def factors_of(principal: Principal) -> FactorList:
    """Return the factors of the signed-in user."""
    return list_factors(realm=END_USERS, tenant_id=principal.tenant_id, user_id=principal.id)


def shown_factor(factor: dict[str, object]) -> dict[str, object]:
    """Return a listed factor with its kind as `label` and with its `name`, in the user's language."""
    label = WAYS[str(factor["kind"])].label
    unnamed = factor["kind"] == TOTP or factor["name"] == UNNAMED
    return {**factor, "label": label, "name": label if unnamed else factor["name"]}
