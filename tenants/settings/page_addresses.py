"""Addresses of tenants' pages and endpoints: on a sign-in domain of their own, else below the platform's address."""

from typing import NamedTuple
from urllib.parse import urlsplit

from django.conf import settings


class PageAddress(NamedTuple):
    """Where a tenant's pages are: its sign-in domain if it has one, else the path of its slug."""

    slug: str = ""
    domain: str | None = None

    @property
    def root(self) -> str:
        """Return the address that the paths of pages and endpoints follow."""
        return origin_of(self.domain) if self.domain else f"{settings.BASE_URL}/t/{self.slug}"


def origin_of(domain: str) -> str:
    """Return the origin of a sign-in domain: `https` in production, with the scheme and port of BASE_URL.

    Never from the Host header: a forged one must not send clients' secrets elsewhere.
    """
    public = urlsplit(settings.BASE_URL)
    return f"{public.scheme}://{domain}" + (f":{public.port}" if public.port else "")
