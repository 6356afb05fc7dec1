"""The console in another language: a browser asks for it and there is a catalogue. Everything else stays English."""

import ast
import re
import struct
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import console
from identity_platform.environment import translated_languages
from tests.catalogues import ROOT, compiled_entries, messages_of, source_entries
from tests.console.staff import new_operator, new_tenant_admin
from tests.world import TestTenant, reload_middleware

WORDS = {
    "Username": "Uzantnomo",
    "Created": "Kreita je",
    "active": "aktiva",
    "Admin users": "Administrantoj",
    "client\0clients": "kliento\0klientoj",
}
CATALOGUES = Path(console.__file__).parent / "locale"
LANGUAGES = ("de", "fr", "es")
TAGS_OF_TEMPLATE = re.compile(
    r"\{%-?\s*(blocktrans(?:late)?|comment)\b.*?\{%\s*end\1\s*%\}|\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}", re.DOTALL
)
VOID = {"br", "hr", "img", "input", "link", "meta", "path", "rect", "circle", "line", "col"}
SAME_EVERYWHERE = {"UTC"}
# Arguments whose strings people read.
LABELS = {"label", "help_text", "description", "short_description", "title", "placeholder", "verbose_name"}
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


@pytest.mark.parametrize("language", LANGUAGES)
def test_catalogue_has_exactly_the_texts_of_the_console(language: str) -> None:
    entries = source_entries(CATALOGUES / language / "LC_MESSAGES/django")
    assert f"Language: {language}\n" in entries.pop("")
    texts = texts_of_console()
    assert len(texts) > 1_500
    # A text that has plural forms elsewhere is found as their first one.
    plural = {key.partition("\0")[0] for key in entries if "\0" in key}
    assert (texts - set(entries) - plural, set(entries) - texts) == (set(), set())
    assert [key for key, translation in entries.items() if not all(translation.split("\0"))] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_compiled_catalogue_equals_its_source(language: str) -> None:
    path = CATALOGUES / language / "LC_MESSAGES/django"
    assert compiled_entries(path) == source_entries(path)


@pytest.mark.parametrize("language", LANGUAGES)
def test_translations_have_the_placeholders_of_their_texts(language: str) -> None:
    placeholder = re.compile(r"%\(\w+\)[sd]|%[sd]|\{\w*\}")
    for text, translation in source_entries(CATALOGUES / language / "LC_MESSAGES/django").items():
        wanted = sorted(set(placeholder.findall(text)))
        assert sorted(set(placeholder.findall(translation))) == wanted, text


def test_templates_have_no_text_without_translation() -> None:
    read = 0
    for path in console_templates():
        page = TextsOfPage()
        page.feed(TAGS_OF_TEMPLATE.sub("", path.read_text()))
        assert [text for text in page.texts if re.search("[A-Za-z]{2}", text)] == [], path
        read += 1
    assert read > 60


def test_code_has_no_label_without_translation() -> None:
    read = 0
    for path in Path(console.__file__).parent.rglob("*.py"):
        # Texts of models are for developers: forms and lists state their own.
        if "migrations" in path.parts or path.name in ("models.py", "apps.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg in LABELS:
                read += 1
                assert not isinstance(node.value, ast.Constant) or not node.value.value, (path, node.value.lineno)
    assert read > 250


def texts_of_console() -> set[str]:
    """Return the texts of the console; hosted pages and mails have catalogues of their own."""
    apps = ("console", "tenants", "registry", "identity_platform")
    return messages_of((path for app in apps for path in (ROOT / app).rglob("*.py")), console_templates())


def console_templates() -> list[Path]:
    return [path for folder in ("console", "admin", "unfold") for path in (ROOT / "templates" / folder).rglob("*.html")]


class TextsOfPage(HTMLParser):
    """Collect what a reader sees or a screen reader says."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.inside: list[bool] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.texts += [values[name] or "" for name in ("title", "aria-label", "placeholder", "alt") if name in values]
        if tag not in VOID:
            self.inside.append(
                tag in ("script", "style", "code", "kbd") or "material-symbols-outlined" in (values.get("class") or "")
            )

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID and self.inside:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        text = data.strip()
        if text not in SAME_EVERYWHERE and not any(self.inside[-1:]):
            self.texts.append(text)
