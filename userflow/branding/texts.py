"""Languages of hosted pages and mails, and the texts that a tenant can write itself."""

from collections.abc import Iterable
from typing import Final

from django.utils.translation import get_language_info, to_locale
from django.utils.translation.trans_real import parse_accept_lang_header

# English, and those of the catalogues. Not settings.LANGUAGES, which are those of the console: an app's catalogues add none.
LANGUAGES: Final = ("en", "de", "fr", "es")
HEADING: Final = "signin_heading"
INTRO: Final = "signin_intro"
FOOTER: Final = "mail_footer"
# The longest texts, in characters.
LONGEST: Final = {HEADING: 80, INTRO: 300, FOOTER: 500}


def named_languages() -> list[tuple[str, str]]:
    """Return the languages, each with its own name for itself."""
    return [(code, get_language_info(code)["name_local"]) for code in LANGUAGES]


def known_language(codes: Iterable[str]) -> str:
    """Return the language of the first code for which there is a catalogue, or ""."""
    languages = (to_locale(code[:35].lower()).partition("_")[0] for code in codes)
    return next((language for language in languages if language in LANGUAGES), "")


def accepted_codes(header: str) -> list[str]:
    """Return the codes of an Accept-Language header, preferred first (RFC 9110 section 12.5.4)."""
    return [code for code, _ in parse_accept_lang_header(header)]
