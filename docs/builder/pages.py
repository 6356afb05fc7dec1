"""Lay out the source folder of the site: the pages of docs/, other files of the repository that they link to, indexes."""

import os
import re
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from docs.builder.api_reference import ApiReference

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# A link of Markdown to a path of the repository: no scheme, no address on the host.
LINK = re.compile(r"(\]\()(?![a-z]+:|/|#|<)([^)#\s]+)")
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {
    ".py": "python",
    ".js": "js",
    ".sh": "sh",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".json": "json",
}
COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
# The landing page lists all pages below one heading per kind, in the format of llms.txt (https://llmstxt.org).
INDEX = DOCS / "index.md"
API_REFERENCE = "<!-- API reference -->"
API_REFERENCE_LINK = (
    "- [API reference](reference/index.md): every operation, by topic, with its parameters, bodies and responses"
)
# Folders of the site: files from outside docs/, and the API reference.
REPOSITORY, REFERENCE = "repository", "reference"


class SourceFolder:
    """The Markdown files of the site in a new folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._waiting: list[Path] = []
        self._written: set[Path] = set()

    def write(self, document: dict[str, Any]) -> None:
        """Write everything that Sphinx reads."""
        shutil.copytree(DOCS / "images", self.folder / "images")
        (self.folder / REFERENCE).mkdir()
        reference = ApiReference(document).pages()
        for name, text in reference.items():
            (self.folder / REFERENCE / name).write_text(text, encoding="utf-8")
        (self.folder / REFERENCE / "index.md").write_text(
            _reference_index(reference, document["x-tagGroups"]), encoding="utf-8"
        )
        self._waiting = sorted(DOCS.glob("*.md"))
        while self._waiting:
            path = self._waiting.pop()
            if path not in self._written:
                self._written.add(path)
                self._write_page(path)

    def _write_page(self, path: Path) -> None:
        place = self.folder / self._place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text = self._with_links_of_the_site(path)
        else:
            name = path.relative_to(ROOT).as_posix()
            language = LANGUAGES.get(path.suffix, "text")
            text = f"# {name}\n\n````{language}\n{path.read_text(encoding='utf-8')}````\n"
        if place.is_relative_to(self.folder / REPOSITORY):
            text = f"---\norphan: true\n---\n\n{text}"
        if path == INDEX:
            text = text.replace(API_REFERENCE, API_REFERENCE_LINK)
            (self.folder / "llms.txt").write_text(COMMENT.sub("", text), encoding="utf-8")
            text += _toctrees(text)
        place.write_text(text, encoding="utf-8")

    def _place(self, path: Path) -> PurePosixPath:
        """Return where a file of the repository is on the site."""
        if path.is_relative_to(DOCS):
            return PurePosixPath(path.relative_to(DOCS))
        name = PurePosixPath(REPOSITORY, path.relative_to(ROOT))
        return name if path.suffix == ".md" else name.with_name(f"{name.name}.md")

    def _with_links_of_the_site(self, path: Path) -> str:
        """Return a page whose links lead to the places of the files on the site, which get pages if they have none."""
        here = self._place(path).parent

        def replace(found: re.Match[str]) -> str:
            target = (path.parent / found[2]).resolve()
            if target.is_relative_to(DOCS / "builder") or not target.is_relative_to(ROOT):
                raise ValueError(f"{path.name}: {found[2]} is not on the site.")
            if target.is_dir():
                target /= "README.md"
            if target.parent != DOCS / "images":
                self._waiting.append(target)
            return f"{found[1]}{os.path.relpath(self._place(target), here)}"

        text = path.read_text(encoding="utf-8")
        kept = FENCE.findall(text)
        without = FENCE.sub("\x00", text)
        parts = LINK.sub(replace, without).split("\x00")
        return parts[0] + "".join(block + part for block, part in zip(kept, parts[1:], strict=True))


def _toctrees(index: str) -> str:
    """Return one hidden table of contents per heading of the landing page, from its links."""
    trees = ""
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        pages = re.findall(r"^- \[[^\]]+\]\((?!/)([^)]+)\)", section, re.MULTILINE)
        trees += _toctree(section.partition("\n")[0], pages)
    return trees


def _toctree(caption: str, pages: list[str]) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


def _reference_index(pages: dict[str, str], groups: list[dict[str, Any]]) -> str:
    """Return the landing page: the pages of tags by the groups of the document, then the other pages."""
    names = {text.partition("\n")[0].removeprefix("# "): name for name, text in pages.items()}
    listed = ""
    for group in groups:
        listed += f"## {group['name']}\n\n" + "".join(f"- [{tag}]({names.pop(tag)})\n" for tag in group["tags"]) + "\n"
    listed += "## Shared by all\n\n" + "".join(f"- [{title}]({name})\n" for title, name in names.items())
    return (
        "# API reference\n\nRendered from the OpenAPI document of this version, which a running platform serves at `/schema/`. "
        "To try calls, use [Swagger UI](/docs/api/). For generated clients there are "
        "[parts of the document](../integrating-a-client.md#with-a-generated-client).\n\n"
        + listed
        + "\n"
        + _toctree("API reference", list(pages))
    )
