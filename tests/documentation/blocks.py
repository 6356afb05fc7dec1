"""The code blocks of the documentation, and the commands in them."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
BLOCK = re.compile(
    r"(?:^ *<!-- (?P<mark>[^\n]*?) -->\n\s*)?^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
SHELL = {"bash", "sh"}


@dataclass(frozen=True)
class Block:
    """A fenced block, with the comment before it."""

    page: Path
    line: int
    mark: str
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_walk(self) -> bool:
        return self.mark == "walk"

    def commands(self) -> Iterator[list[str]]:
        """Yield the simple commands, in words, without redirections. Variables stay as they are written."""
        for line in self.text.replace("\\\n", " ").splitlines():
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            command: list[str] = []
            words = iter(lexer)
            for word in words:
                if set(word) <= set("|&;"):
                    yield command
                    command = []
                elif set(word) <= set("<>"):
                    next(words)
                else:
                    command.append(word)
            yield command


def blocks(pages: Sequence[Path] = PAGES) -> list[Block]:
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found["mark"] or "", found["language"], found["text"])
        for page in pages
        for text in [page.read_text()]
        for found in BLOCK.finditer(text)
    ]
