"""Render mails from templates/email: text and HTML, in the language and with the branding that they have."""

from collections.abc import Mapping
from email.headerregistry import Address
from email.utils import make_msgid, parseaddr

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string
from django.utils import translation
from django.utils.translation import gettext_lazy as _

from identity_platform.api.display_name import is_misleading
from identity_platform.api.email_addresses import a_labels
from identity_platform.audit.origin import current_origin
from userflow.branding.colors import DARK, LIGHT, accent
from userflow.branding.models import Branding
from userflow.branding.reading import text_of
from userflow.branding.texts import FOOTER, LANGUAGES, accepted_codes, known_language
from userflow.mail.budgets import STAFF

PLATFORM = "Identity platform"
# What the buttons of mails say; the link is below them.
BUTTONS = {
    "address_taken": _("Sign in"),
    "admin_email_proof": _("Verify e-mail address"),
    "email_changed": _("Keep this address"),
    "email_proof": _("Verify e-mail address"),
    "invitation": _("Accept invitation"),
    "password_reset": _("Set a new password"),
}
# Stands in a link for the language of the mail, which is known when it is sent.
LANGUAGE_OF_MAIL = "{language}"


def link_facts(page: object, token: str) -> dict[str, object]:
    """Return the facts `link` and `token` of a mail. Browsers do not send the part after `#`, so no log has the token."""
    return {"link": f"{page}#token={token}", "token": token}


def render(
    template: str, *, to: str, facts: Mapping[str, object], branding: Branding | None, language: str
) -> EmailMultiAlternatives:
    """Return the mail of templates/email/`template`.txt to one recipient, as text and HTML.

    A mail to an end user of a tenant has its `branding` and a language that the user reads: `language` is the user's own
    choice. Others, without branding, are in English.
    """
    sender, spoken = str(settings.DEFAULT_FROM_EMAIL), LANGUAGES[0]
    if branding is None:
        branding = Branding()
    else:
        facts = {**facts, "issuer": branding.name or facts["issuer"]}
        sender, spoken = _sender(branding.sender_name or str(facts["issuer"])), _language(branding, language)
    if "link" in facts:
        facts = {**facts, "link": str(facts["link"]).replace(LANGUAGE_OF_MAIL, spoken)}
    with translation.override(spoken):
        subject = " ".join(render_to_string(f"email/{template}.subject.txt", facts).split())
        text = render_to_string(f"email/{template}.txt", facts).strip()
        footer = text_of(branding, FOOTER, spoken)
        html = _html(template, subject, text, footer, facts, branding)
    plain = f"{text}\n\n-- \n{footer}\n" if footer else f"{text}\n"
    # Prevents automatic replies (RFC 3834 section 5).
    headers = {"Auto-Submitted": "auto-generated", "Message-ID": _message_id()}
    message = EmailMultiAlternatives(subject, plain, sender, to=[to], headers=headers)
    message.attach_alternative(html, "text/html")
    return message


def _language(branding: Branding, user_language: str) -> str:
    """Return the language that the application asked for, else `user_language`, that of the page, the tenant, the request.

    A request of an admin or operator says nothing about the language of the user who gets the mail.
    """
    origin = current_origin()
    if user_language and not origin.language_is_asked_for:
        return user_language
    accepted = "" if origin.actor_kind in STAFF else origin.accept_language
    return origin.language or branding.language or known_language(accepted_codes(accepted)) or LANGUAGES[0]


def _message_id() -> str:
    """Return a new id at the sender's domain (RFC 5322 section 3.6.4): Django's has the name of the machine."""
    _, address = parseaddr(str(settings.DEFAULT_FROM_EMAIL))
    domain = address.rpartition("@")[2] or "localhost"
    return make_msgid(domain=domain if domain.isascii() else a_labels(domain))


def _sender(name: str) -> str:
    """Return the platform's address with the tenant's name.

    The name can also be that of the tenant, which is under no rule: one that could pass for another sender is not used.
    """
    _, address = parseaddr(str(settings.DEFAULT_FROM_EMAIL))
    shown = " ".join(name.split())
    return str(Address(PLATFORM if is_misleading(shown) else shown, addr_spec=address))


def _html(template: str, subject: str, text: str, footer: str, facts: Mapping[str, object], branding: Branding) -> str:
    """Return the text as HTML: a link on a line of its own becomes a button, a code is easy to select."""
    secrets = {str(facts[name]) for name in ("token", "code") if facts.get(name)}
    values = {
        "language": translation.get_language(),
        "subject": subject,
        "issuer": facts.get("issuer") or facts.get("tenant") or PLATFORM,
        "paragraphs": [(part, _kind(part, facts, secrets)) for part in map(str.strip, text.split("\n\n")) if part],
        "button": BUTTONS.get(template, ""),
        "footer": footer,
        "light": accent(branding.color_light, LIGHT),
        "dark": accent(branding.color_dark, DARK),
    }
    return render_to_string("email/layout.html", values)


def _kind(paragraph: str, facts: Mapping[str, object], secrets: set[str]) -> str:
    if paragraph == facts.get("link"):
        return "link"
    return "secret" if paragraph in secrets else "text"
