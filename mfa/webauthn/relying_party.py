"""For whom passkeys are made: the tenant's settings, else the platform's."""

from django.conf import settings

from mfa.errors import NoRelyingParty
from mfa.webauthn.ceremony import RelyingParty
from tenants.context import current_tenant
from userflow.realms import END_USERS, Realm


def relying_party(realm: Realm, *, name: str = "") -> RelyingParty:
    """The relying party of the realm's users; call it inside the realm. `name` is what an authenticator may show.

    Admin users sign in to the platform, end users to their tenant's pages. Nothing of the request has a say in it, so a
    forged Host cannot move it. Refuses with NoRelyingParty (400) where none is set.
    """
    own = current_tenant().settings if realm is END_USERS else {}
    rp_id = own.get("webauthn_rp_id") or settings.WEBAUTHN_RP_ID
    origins = own.get("webauthn_origins") or _default_origins(own)
    if not rp_id or not origins:
        raise NoRelyingParty
    return RelyingParty(rp_id, name or rp_id, tuple(origins))


def _default_origins(own: dict[str, str]) -> list[str]:
    """A domain of the tenant's own is its own origin; the platform's origins would be of no use to it."""
    rp_id = own.get("webauthn_rp_id")
    if rp_id and rp_id != settings.WEBAUTHN_RP_ID:
        return [f"https://{rp_id}"]
    return list(settings.WEBAUTHN_ORIGINS)
