"""German, French and Spanish: complete catalogues, and pages in the language that the application or the browser prefers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from identity_platform.api.errors import ApiError
from mfa.errors import AccountDeletionOff, PhoneRejected, TooManyPasskeys
from mfa.sms.codes import mobile_number
from openid.errors import RequestExpired, UserCodeUnknown
from tests.catalogues import ROOT, compiled_entries, messages_of, source_entries
from tests.openid.pages.visitor import Visitor, begin
from tests.world import TestTenant
from userflow.branding.texts import LANGUAGES
from userflow.credentials.passwords import check_strength
from userflow.errors import LastActiveUser, WeakPassword

TRANSLATED: Final = LANGUAGES[1:]
# The hosted pages' catalogues, and those of mails.
APPS: Final = ("openid", "userflow")
SIGN_IN: Final = {"en": "Sign in", "de": "Anmelden", "fr": "Se connecter", "es": "Iniciar sesión"}
_PLACEHOLDER = re.compile(r"%(?:\([a-z]+\))?s")
# Errors of actions that the pages show with the text of the API.
SHOWN: Final = (TooManyPasskeys, RequestExpired, UserCodeUnknown, AccountDeletionOff, LastActiveUser)


def catalog(app: str, language: str) -> Path:
    """Return the path of a catalogue, without suffix."""
    return ROOT / app / "locale" / language / "LC_MESSAGES/django"


def messages_of_pages() -> set[str]:
    """Return the messages of the hosted pages, in code and templates."""
    return messages_of((ROOT / "openid").rglob("*.py"), (ROOT / "templates/openid").rglob("*.html"))


def messages_of_mails() -> set[str]:
    """Return the messages of mails, in code and templates."""
    return messages_of(
        (ROOT / "userflow/mail/rendering.py", ROOT / "mfa/notices.py"), (ROOT / "templates/email").iterdir()
    )


def messages_of_actions() -> Iterator[str]:
    """Return the messages of errors of actions that the pages show, with `%s` in place of varying numbers."""
    yield from (error.message for error in SHOWN)
    for password, own in (("short", ""), ("jane.doe@example.com", "jane.doe@example.com"), ("password123", "")):
        with pytest.raises(WeakPassword) as weak:
            check_strength(password, personal=(own,))
        yield re.sub("[0-9]+", "%s", only_message(weak.value))
    for number in ("0171 1234567", "+999123456789", "+44740012345", "+4407400123456", "+442079460000", "+447400123456"):
        with pytest.raises(PhoneRejected) as rejected:
            mobile_number(number, countries={"DE"})
        yield only_message(rejected.value)


def only_message(error: ApiError) -> str:
    """Return the one message in the details of an error."""
    ((message,),) = error.messages.values()
    return message


@pytest.mark.parametrize("language", TRANSLATED)
@pytest.mark.parametrize("app", APPS)
def test_compiled_catalog_equals_its_source(app: str, language: str) -> None:
    assert compiled_entries(catalog(app, language)) == source_entries(catalog(app, language))


@pytest.mark.parametrize("language", TRANSLATED)
def test_catalog_has_exactly_the_messages_of_the_pages(language: str) -> None:
    entries = source_entries(catalog("openid", language))
    assert f"Language: {language}\n" in entries.pop("")
    messages = messages_of_pages()
    assert len(messages) > 150
    assert set(entries) == messages | set(messages_of_actions())
    assert all(entries.values())


@pytest.mark.parametrize("language", TRANSLATED)
def test_catalog_has_exactly_the_messages_of_the_mails(language: str) -> None:
    entries = source_entries(catalog("userflow", language))
    assert f"Language: {language}\n" in entries.pop("")
    assert len(entries) > 50
    assert set(entries) == messages_of_mails()
    assert all(entries.values())


@pytest.mark.parametrize("language", TRANSLATED)
@pytest.mark.parametrize("app", APPS)
def test_translations_keep_placeholders(app: str, language: str) -> None:
    for message, translation in source_entries(catalog(app, language)).items():
        wanted = [sorted(_PLACEHOLDER.findall(text)) for text in message.split("\0")]
        assert [sorted(_PLACEHOLDER.findall(text)) for text in translation.split("\0")] == wanted, message


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_open_in_the_language_of_the_browser(tenant: TestTenant, language: str) -> None:
    visitor = Visitor(tenant)
    visitor.opens("signin", Accept_Language=f"pt, {language}-XX;q=0.8, en;q=0.5")
    assert f'<html lang="{language}">' in visitor.text
    assert SIGN_IN[language] in visitor.words


def test_ui_locales_come_before_the_browser(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    visitor.client.defaults["HTTP_ACCEPT_LANGUAGE"] = "de"
    begin(visitor, ui_locales="pt-BR fr-CA es")
    assert '<html lang="fr">' in visitor.text
    assert "pour continuer vers Shop" in visitor.words
    visitor.sends(email="nothing")
    assert visitor.page.status_code == 400
    assert "Saisissez une adresse e-mail" in visitor.words
    visitor.opens("signin")
    assert '<html lang="de">' in visitor.text


def test_users_language_is_between_ui_locales_and_the_browser(tenant: TestTenant) -> None:
    user, visitor = tenant.register(), Visitor(tenant)
    assert tenant.as_user(user).put("/authmgr/profile", {"language": "es"}).status_code == 200
    visitor.client.defaults["HTTP_ACCEPT_LANGUAGE"] = "de"
    visitor.signs_in(user)
    for path in ("account", "account/security", "signout", "signin"):
        visitor.opens(path)
        assert '<html lang="es">' in visitor.text, path
    begin(visitor, ui_locales="fr", prompt="select_account")
    assert '<html lang="fr">' in visitor.text
    begin(visitor, ui_locales="pt", prompt="select_account")
    assert '<html lang="es">' in visitor.text
    visitor.opens("signout")
    visitor.sends()
    assert '<html lang="de">' in visitor.text


def test_ui_locales_without_catalog_leave_the_browser(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    visitor.client.defaults["HTTP_ACCEPT_LANGUAGE"] = "es-MX"
    begin(visitor, ui_locales="pt ja")
    assert '<html lang="es">' in visitor.text


def test_page_of_expired_request_is_in_the_browsers_language(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    visitor.opens("signin")
    visitor.opens("signin?request=unknown", Accept_Language="de")
    assert visitor.page.status_code == 400
    assert "Diese Anmeldung ist abgelaufen oder bereits abgeschlossen." in visitor.words


def test_messages_of_actions_are_translated(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    visitor.client.defaults["HTTP_ACCEPT_LANGUAGE"] = "de"
    visitor.signs_in(user, password="wrong password 1")
    assert "E-Mail-Adresse oder Passwort ist falsch." in visitor.words
    visitor.opens("register")
    visitor.sends(name="", email="new-here@example.com", password="short")
    assert visitor.page.status_code == 400
    assert re.search("Verwenden Sie [0-9]+ bis 128 Zeichen.", visitor.words), visitor.words


@pytest.mark.parametrize("language", LANGUAGES)
def test_times_name_their_time_zone(tenant: TestTenant, language: str) -> None:
    visitor = Visitor(tenant)
    visitor.client.defaults["HTTP_ACCEPT_LANGUAGE"] = language
    visitor.signs_in(tenant.register())
    visitor.opens("account/devices")
    assert re.search("[0-9]{2}:[0-9]{2} UTC", visitor.words), visitor.words
    # For the script, which shows it in the zone of the browser.
    assert re.search('<time datetime="[0-9-]{10}T[0-9:]{8}Z">', visitor.text), visitor.text
