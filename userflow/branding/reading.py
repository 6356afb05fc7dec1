"""What hosted pages and mails read of the branding, in one statement."""

from userflow.branding.models import Branding
from userflow.branding.texts import FOOTER


def find_branding() -> Branding:
    """Return the branding of the entered tenant without the bytes of its logo; an empty one if nothing is set."""
    return Branding.objects.defer("logo").first() or Branding()


def find_logo() -> tuple[bytes, str, str] | None:
    """Return bytes, media type and digest of the logo of the entered tenant, or None without one."""
    row = Branding.objects.exclude(logo=None).values_list("logo", "logo_type", "logo_digest").first()
    return (bytes(row[0] or b""), row[1], row[2]) if row is not None else None


def text_of(branding: Branding, name: str, language: str) -> str:
    """Return the tenant's own text in this language, or "". The footer of mails falls back to the tenant's language."""
    text = branding.texts.get(language, {}).get(name, "")
    return text or (branding.texts.get(branding.language or "en", {}).get(name, "") if name == FOOTER else "")
