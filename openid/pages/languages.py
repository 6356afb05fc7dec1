"""The language of a hosted page: what the application asked for, else what the browser prefers, else English."""

from collections.abc import Sequence

from django.http import HttpRequest
from django.utils.translation import to_locale
from django.utils.translation.trans_real import parse_accept_lang_header

from userflow.branding.texts import LANGUAGES


def language_of(request: HttpRequest, *, ui_locales: Sequence[str] = ()) -> str:
    """Return the language of the first preference for which there is a catalogue (OpenID Connect Core section 3.1.2.1)."""
    accepted = [code for code, _ in parse_accept_lang_header(request.META.get("HTTP_ACCEPT_LANGUAGE", ""))]
    for code in (*ui_locales, *accepted):
        language = to_locale(code[:35].lower()).partition("_")[0]
        if language in LANGUAGES:
            return language
    return LANGUAGES[0]
