"""Every shell block of the documentation is executed, or says why not and is checked: syntax, commands, options, calls."""

import json
import re
import shlex
import subprocess
from dataclasses import replace
from itertools import dropwhile
from typing import Any

import pytest
from django.core.management import CommandError, get_commands, load_command_class
from django.http import HttpRequest

from identity_platform.api.documents import PARTS, openapi
from tests.documentation.blocks import PAGES, ROOT, SHELL, Block, blocks

BLOCKS = blocks()
SHELL_BLOCKS = [block for block in BLOCKS if block.language in SHELL]
WALKS = [block for block in SHELL_BLOCKS if block.is_walk]
# How a walk sends a request, prints the response and reads a field of it.
PREAMBLE = (ROOT / "tests/documentation/preamble.sh").read_text()
READMES_OF_SDKS = [ROOT / "sdk" / language / "README.md" for language in ("python", "typescript")]
QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
NO_BRACKETS = str.maketrans("", "", "[]")
# Lines of a crontab: five fields, then the command.
SCHEDULE = re.compile(r"^(?:\S+ +){5}(bin/.*\n)", re.MULTILINE)
SCHEDULES = [replace(block, text="".join(SCHEDULE.findall(block.text))) for block in BLOCKS if block.language == "text"]


def ids(found: list[Block]) -> list[str]:
    return [block.place for block in found]


def commands(name: str) -> list[tuple[str, list[str]]]:
    """Return the commands of blocks that are not executed whose program is this, with their places."""
    found = []
    for block in [*SHELL_BLOCKS, *SCHEDULES]:
        for command in [] if block.is_walk else block.commands():
            words = [*dropwhile(lambda word: re.match(r"\w+=", word), command)]
            if words[:1] == [name]:
                found.append((block.place, words[1:]))
    return found


def test_every_block_names_its_language() -> None:
    assert [block.place for block in BLOCKS if not block.language] == []
    assert len(SHELL_BLOCKS) > 50


def test_every_shell_block_is_a_walk_or_says_why_not() -> None:
    assert [one.place for one in SHELL_BLOCKS if not one.is_walk and not re.match(r"not run: \w.{10,}", one.mark)] == []
    assert len(WALKS) > 10


@pytest.mark.parametrize("walk", WALKS, ids=ids(WALKS))
def test_walk_prints_each_response_of_one_tenant(walk: Block) -> None:
    assert walk.text.startswith(PREAMBLE)
    steps = walk.text.removeprefix(PREAMBLE)
    # Each request goes through `call`, which prints the response. Nothing is hidden, and nothing is expected to fail.
    assert re.findall(r"\bcurl\b|/dev/null|\|\| |^!|^test |^\[", steps, re.MULTILINE) == []
    assert "create_tenant" not in steps
    assert re.findall(r"^ *call .*/uflow/admin/tenants[\"' ]", steps, re.MULTILINE) == []
    assert set(re.findall(r"bin/manage (?:ex|im)port_\w+ (\S+)", steps)) <= {"demo"}


def test_shell_blocks_have_no_comment() -> None:
    # An interactive zsh takes a comment for arguments. Walks change that in their first line.
    pasted = [*SHELL_BLOCKS, *(block for block in blocks(READMES_OF_SDKS) if block.language in SHELL)]
    others = [block for block in pasted if not block.is_walk]
    assert [block.place for block in others if has_comment(block.text)] == []
    assert len(others) > 90


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("bin/serve   # in another terminal", True),
        ("# don't\nbin/serve", True),
        ("sed -e 's/^  # x//' file", False),
        ("curl \\\n  '#a' \"$X #\" b#c", False),
    ],
)
def test_comments_are_found(text: str, has: bool) -> None:
    assert has_comment(text) == has


def has_comment(text: str) -> bool:
    """Return whether a `#` begins a word outside of quotations: a script takes it for a comment."""
    return re.search(r"(?:^|\s)#", QUOTED.sub("quoted", text), re.MULTILINE) is not None


def test_shell_blocks_have_no_syntax_error() -> None:
    wrong = [
        block.place
        for block in SHELL_BLOCKS
        if subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True).returncode
    ]
    assert wrong == []


def test_commands_of_the_project_exist() -> None:
    named = {
        (block.place, name) for block in BLOCKS for name in re.findall(r"(?<![\w./-])bin/[a-z]+\b(?!\.)", block.text)
    }
    assert [one for one in sorted(named) if not (ROOT / one[1]).is_file()] == []
    assert len(named) > 30


def test_management_commands_take_the_options() -> None:
    apps = get_commands()
    found = [*commands("bin/manage"), *commands_in_sentences()]
    rejected = []
    for place, (name, *arguments) in found:
        if name not in apps:
            rejected.append(f"{place}: {name} is no command")
        if name not in apps or (not arguments and place.endswith(".md")):
            continue  # a sentence may name a command without its arguments
        app = apps[name]
        command = load_command_class(app, name) if isinstance(app, str) else app
        try:
            command.create_parser("manage.py", name).parse_args(arguments)
        except CommandError as problem:
            rejected.append(f"{place}: {name} {' '.join(arguments)}: {problem}")
    assert rejected == []
    assert len(found) > 80


def commands_in_sentences() -> list[tuple[str, list[str]]]:
    """Return the management commands between backticks, with their pages. Brackets mean that an option can be left out."""
    return [
        (page.name, shlex.split(command.partition("|")[0].translate(NO_BRACKETS)))
        for page in PAGES
        for command in re.findall(r"`bin/manage ([a-z][^`\n]+)`", page.read_text())
    ]


def test_calls_are_operations_of_the_api() -> None:
    paths: dict[str, Any] = json.loads(openapi(HttpRequest()).content)["paths"]
    operations = [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), set(item)) for path, item in paths.items()]
    # The document itself, and its parts.
    operations.append((re.compile(f"/schema/(({'|'.join(PARTS)})/)?"), {"get"}))
    requests = [*requests_of("curl"), *requests_of("post")]
    unknown = [
        f"{place}: {method.upper()} {path}"
        for place, method, path in requests
        if not any(pattern.fullmatch(path) and method in methods for pattern, methods in operations)
    ]
    assert unknown == []
    assert len(requests) > 20


def requests_of(program: str) -> list[tuple[str, str, str]]:
    """Return place, method and path of each call with curl, or with the function `post` of a page, to the platform."""
    found = []
    for place, arguments in commands(program):
        address = next((word for word in arguments if word.startswith(("$BASE_URL/", "$ISSUER/", "/"))), None)
        if address is None or address.startswith("$BASE_URL$"):
            continue
        method = "post" if program == "post" or "-d" in arguments else "get"
        if "-X" in arguments:
            method = arguments[arguments.index("-X") + 1].lower()
        found.append((place, method, address.replace("$ISSUER", "/t/acme").removeprefix("$BASE_URL")))
        for body in [word for word in arguments if word.startswith("{")]:
            json.loads(body)
    return found
