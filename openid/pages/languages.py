"""The language of a hosted page: what the application asked for, else the user's own, else the browser's, else English."""

from collections.abc import Sequence

from django.http import HttpRequest

from userflow.branding.texts import LANGUAGES, accepted_codes, known_language


def language_of(request: HttpRequest, *, ui_locales: Sequence[str] = (), own: str = "") -> str:
    """Return the language of the first preference for which there is a catalogue (OpenID Connect Core section 3.1.2.1).

    `own` is what the user has chosen, or "".
    """
    accepted = accepted_codes(request.META.get("HTTP_ACCEPT_LANGUAGE", ""))
    return known_language((*ui_locales, own, *accepted)) or LANGUAGES[0]
