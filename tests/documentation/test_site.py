"""The built site: links and anchors lead somewhere, nothing is loaded from elsewhere, Markdown is beside the pages."""

import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from django.urls import Resolver404, resolve

from tests.documentation.blocks import ROOT
from tests.documentation.built_site import built_site

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "srcset")}


class Page(HTMLParser):
    """What a page links to and loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.anchors.add(value or "")
            elif (tag, name) == ("a", "href"):
                self.links.add(value or "")
            elif (tag, name) in LOADED:
                self.loaded.add(value or "")


@pytest.fixture(scope="module")
def site() -> Path:
    return built_site()


@cache
def pages(folder: Path) -> dict[str, Page]:
    """Return the pages by their addresses."""
    return {
        f"/docs/{path.relative_to(folder).as_posix()}": Page(path.read_text(encoding="utf-8"))
        for path in folder.rglob("*.html")
    }


def internal(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the page, the path and the anchor of every link and every file on this host."""
    for address, page in pages(folder).items():
        for target in page.links | page.loaded:
            parts = urlsplit(urljoin(address, target))
            if not parts.scheme:
                yield address, unquote(parts.path), unquote(parts.fragment)


def test_links_and_anchors_lead_somewhere(site: Path) -> None:
    dead = set()
    for address, path, anchor in internal(site):
        if path.startswith("/docs/") and path not in ("/docs/", "/docs/api/"):
            page = pages(site).get(path)
            if not (site / path.removeprefix("/docs/")).is_file() or (page and anchor not in page.anchors):
                dead.add(f"{address}: {path}#{anchor}")
        else:
            try:
                resolve(path)
            except Resolver404:
                dead.add(f"{address}: {path}")
    assert dead == set()
    assert len(pages(site)) > 60


def test_external_links_are_well_formed(site: Path) -> None:
    external = {link for page in pages(site).values() for link in page.links if "://" in link}
    wrong = [link for link in external if not re.fullmatch(r"https://[a-z0-9.-]+\.[a-z]+(/[^\s<>\"]*)?", link)]
    # Addresses of the platform and the sample application on the reader's machine.
    assert [link for link in wrong if not link.startswith(("http://localhost:8000/", "http://127.0.0.1:8001/"))] == []


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    assert {one for page in pages(site).values() for one in page.loaded if urlsplit(one).netloc} == set()
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    embedded = re.compile(r"url\(([\"']?)data:.*?\1\)")
    assert re.findall(r"url\([^)]*//[^)]*\)|@import", embedded.sub("", styles)) == []


def test_every_page_has_its_markdown_and_icon(site: Path) -> None:
    for address, page in pages(site).items():
        assert any(one.endswith("_static/icon.svg") for one in page.loaded)
        path = site / address.removeprefix("/docs/")
        if path.name != "search.html":
            assert path.with_suffix(".md").is_file()
            assert f"{path.stem}.md" in page.loaded


def test_llms_txt_lists_every_page_of_the_documentation(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# Identity platform\n\n> ")
    linked = set(re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", text, re.MULTILINE))
    assert linked == {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"} | {"reference/index.md"}
    assert [name for name in linked if not (site / name).is_file()] == []
    assert "<!--" not in text


def test_search_finds_pages_of_all_kinds(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    (names,) = re.findall(r'"docnames":\[(.*?)\]', index)
    assert {'"tutorial"', '"tokens"', '"reference/sign-in"', '"repository/CHANGELOG"'} <= set(names.split(","))
