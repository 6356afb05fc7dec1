"""How cookies of the hosted pages are stored. Nothing else hashes one (tests/architecture/test_house_rules.py)."""

from identity_platform.crypto import hash_token
from tenants.entering.context import current_tenant


def cookie_digest(cookie: str) -> bytes:
    """Return the digest that a cookie of a browser is stored as and found by. Call it in the tenant.

    A cookie of a sign-in domain works there only: browsers send it to the next owner of the domain too.
    """
    domain = current_tenant().sign_in_domain
    return hash_token(f"{domain} {cookie}" if domain else cookie)
