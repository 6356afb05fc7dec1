"""The console in another language: a browser asks for it and there is a catalogue. Everything else stays English."""

import re
import struct
from collections.abc import Iterator
from gettext import GNUTranslations
from pathlib import Path
from typing import Any

import pytest

import console
from identity_platform.environment import translated_languages
from tests.console.staff import new_operator, new_tenant_admin
from tests.world import TestTenant, reload_middleware

WORDS = {
    "username": "uzantnomo",
    "created": "kreita je",
    "active": "aktiva",
    "Admin users": "Administrantoj",
    "client\0clients": "kliento\0klientoj",
}
CATALOGUES = Path(console.__file__).parent / "locale"
SPEAKS = {"headers": {"Accept-Language": "eo,en;q=0.5"}}


def compiled(words: dict[str, str]) -> bytes:
    """Return a catalogue as msgfmt writes it (GNU gettext manual, "The Format of GNU MO Files")."""
    head = "Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=(n != 1);\n"
    pairs = sorted((key.encode(), value.encode()) for key, value in {"": head, **words}.items())
    place = 28 + 16 * len(pairs)
    tables: list[bytes] = []
    for texts in zip(*pairs, strict=True):
        for text in texts:
            tables.append(struct.pack("<II", len(text), place))
            place += len(text) + 1
    head_of_file = struct.pack("<IIIIIII", 0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, place)
    return (
        head_of_file + b"".join(tables) + b"".join(text + b"\0" for texts in zip(*pairs, strict=True) for text in texts)
    )


@pytest.fixture
def esperanto(tmp_path: Path, settings: Any) -> Iterator[None]:
    catalogue = tmp_path / "eo" / "LC_MESSAGES" / "django.mo"
    catalogue.parent.mkdir(parents=True)
    catalogue.write_bytes(compiled(WORDS))
    settings.LOCALE_PATHS = [tmp_path]
    settings.LANGUAGES = [("en", "English"), *translated_languages(tmp_path)]
    reload_middleware()
    yield
    reload_middleware()


def test_browser_gets_requested_language(esperanto: None, tenant: TestTenant) -> None:
    operator = new_operator().sign_in()
    admins = operator.browser.get("/admin/userflow/adminuser/", **SPEAKS).content.decode()
    assert '<html lang="eo"' in admins
    assert all(word in admins for word in ("Administrantoj", "Uzantnomo", "aktiva"))
    clients = new_tenant_admin(tenant).sign_in().browser.get("/admin/userflow/client/", **SPEAKS).content.decode()
    assert all(word in clients for word in ("Kreita je", "kliento"))
    assert "Username" in operator.get("/admin/userflow/adminuser/").content.decode()
    refused = tenant.api.post("/authmgr/groups", {"name": 5}, headers={"Accept-Language": "eo"})
    assert refused.json()["details"] == {"name": ["Send a string."]}


@pytest.mark.parametrize(
    ("language", "word"), [("de", "Audit-Log"), ("fr", "Journal d’audit"), ("es", "Registro de auditoría")]
)
def test_console_has_catalogues_of_its_own(language: str, word: str) -> None:
    page = new_operator().sign_in().browser.get("/admin/", headers={"Accept-Language": language}).content.decode()
    assert (f'<html lang="{language}"' in page, word in page) == (True, True)


def test_translations_have_the_placeholders_of_their_texts() -> None:
    placeholder = re.compile(r"%\(\w+\)[sd]|%[sd]")
    for path in CATALOGUES.glob("*/LC_MESSAGES/django.mo"):
        texts = Translations(path.open("rb")).texts()
        assert len(texts) > 1_000
        for text, translation in texts.items():
            assert sorted(placeholder.findall(text)) == sorted(placeholder.findall(translation)), text


class Translations(GNUTranslations):
    """A catalogue whose pairs can be read."""

    def texts(self) -> dict[str, str]:
        pairs: dict[Any, str] = self._catalog  # type: ignore[attr-defined]  # the standard library has no other way
        return {text: translation for text, translation in pairs.items() if isinstance(text, str) and text}
