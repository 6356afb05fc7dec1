"""The blocks of docs/quickstarts.md, and the files and commands in them."""

import re
from collections.abc import Iterator
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "quickstarts.md").read_text()
# The heading, the language and the text of each block.
BLOCKS = [
    (heading, language, block)
    for heading, text in re.findall(r"^##+ ([^\n]+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
]
# The first line of a block that is a file, or the end of one.
_NAME = re.compile(r"(?:#|//|<!--) (?P<name>\S+\.\w+)(?P<at_end>, at the end)?(?: -->)?")
_INSTALLS = ("pip install ", "npm install ", "go get ", "go mod ", "go install ")


def block(heading: str, language: str = "") -> str:
    """Return the only block below a heading, or the only one in a language."""
    (text,) = [text for title, of, text in BLOCKS if title == heading and language in ("", of)]
    return text


def file_name(text: str) -> str | None:
    """Return the name of the file that a block is, or None for one that is part of a file."""
    match = _NAME.fullmatch(text.partition("\n")[0])
    return match["name"] if match else None


def write_file(folder: Path, text: str) -> None:
    """Write the file of a block, or add the block to the end of its file."""
    first, _, rest = text.partition("\n")
    match = _NAME.fullmatch(first)
    assert match, first
    path = folder / match["name"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((path.read_text() if match["at_end"] else "") + rest)


def steps(heading: str) -> Iterator[tuple[str, str]]:
    """Yield `file` and its block, or `command` and a line, in the order of the page, without installations."""
    for title, language, text in BLOCKS:
        if title == heading and language == "sh":
            yield from (("command", line) for line in text.splitlines() if not line.startswith(_INSTALLS))
        elif title == heading and file_name(text):
            yield "file", text


def installed_by(program: str) -> set[str]:
    """Return what the page installs with a program: `pip install` or `npm install`."""
    lines = [line for _, language, text in BLOCKS if language == "sh" for line in text.splitlines()]
    return {word.strip("'") for line in lines if line.startswith(f"{program} ") for word in line.split()[2:]}
