"""The tenant's branding on the hosted pages: name, logo, colors, links and own texts. Nothing of it is HTML, CSS or script."""

from dataclasses import dataclass

from tenants.entering.lookup import TenantContext
from userflow.branding.colors import DARK, LIGHT, declarations, problem_of
from userflow.branding.models import Branding
from userflow.branding.reading import text_of
from userflow.branding.texts import HEADING, INTRO


@dataclass(frozen=True, slots=True)
class Brand:
    """What templates show of a tenant."""

    name: str
    logo: str
    # Declarations of custom properties for light and for dark pages, or "".
    light: str
    dark: str
    terms: str
    privacy: str
    support: str
    heading: str
    intro: str


def brand_of(tenant: TenantContext, branding: Branding, language: str, *, logo: str | None = None) -> Brand:
    """Return the branding as the pages show it in this language. `logo` is the address of one that is not stored yet."""
    stored = f"{tenant.root_path}/logo?v={branding.logo_digest}" if branding.logo_digest else ""
    colors = ((branding.color_light, LIGHT), (branding.color_dark, DARK))
    # Checked again: the stylesheet of a page must never contain anything but colors.
    light, dark = (
        declarations(color, theme) if color and not problem_of(color, theme) else "" for color, theme in colors
    )
    return Brand(
        name=branding.name or tenant.effective["issuer_name"],
        logo=stored if logo is None else logo,
        light=light,
        dark=dark,
        terms=branding.terms_url,
        privacy=branding.privacy_url,
        support=branding.support_url,
        heading=text_of(branding, HEADING, language),
        intro=text_of(branding, INTRO, language),
    )
