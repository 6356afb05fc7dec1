"""Code, templates and pages use plain words: see "Language" and "Glossary" in CONTRIBUTING.md."""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXTS = {".py", ".md", ".html", ".txt", ".js", ".toml", ".yaml", ".conf", ".ini", ".sql", ".in", ""}
# The word, and what to write instead.
WORDS = {
    "whoever": "the caller, the user, the operator",
    "whomever": "the caller, the user, the operator",
    "whatever": "every, any, all",
    "somebody": "a user, a caller, another user",
    "nobody": "no user, no caller",
    "anew": "again",
    "thereof": "of it",
    "befell": "affected",
    "forsaken": "stale",
    "furnish": "initialize",
    "furnished": "initialized",
    "furniture": "initial data",
    "deed": "change, event",
    "deeds": "changes, events",
    "tallies": "daily counters",
    "wait_on": "statement_timeout",
    "stranger": "unknown caller or network",
    "strangers": "unknown callers or networks",
    "neighbour": "other tenant",
    "bury": "dead-letter",
    "buried": "dead-lettered",
    "companions": "worker processes",
    "rung": "proof level",
    "rungs": "proof levels",
    "promised": "reserved",
    "promises": "reservations",
    "forgive": "reset",
    "forgiven": "reset",
    "hears": "receives",
    "spendable": "single-use",
}
# Names that tell neither type nor role, and how many of a thousand lines may have one. `proof` and `moves` are terms too.
VAGUE = frozenset(
    [
        "found",
        "asked",
        "held",
        "stated",
        "wanted",
        "named",
        "kept",
        "moves",
        "own",
        "one",
        "who",
        "place",
        "proof",
        "steps",
        "yielding",
        "speak",
    ]
)
MOST_VAGUE = 2
PRODUCT = ("console", "federation", "identity_platform", "mfa", "openid", "registry", "tenants", "userflow")
PHRASES = {
    r"switch(?:ed|es|ing)? (?:off|on)": "deactivate, activate",
    r"looks? inside": "open the tenant",
    r"drawn for": "form_tenant_id",
}
ALLOWED = {
    # The text of the license.
    "LICENSE": {"thereof"},
    "sdk/python/LICENSE": {"thereof"},
    "sdk/typescript/LICENSE": {"thereof"},
    # A value in the database.
    "userflow/credentials/attempts.py": {"stranger"},
    # Columns of the database.
    "mfa/sms/models.py": {"stranger"},
    "mfa/sms/actions.py": {"stranger"},
    "tests/mfa/people.py": {"stranger"},
    "tests/mfa/signin/test_races.py": {"stranger"},
    # A key in the details of an audit event.
    "mfa/factors.py": {"rung"},
    "tests/mfa/signin/test_factors.py": {"rung"},
    "tests/mfa/webauthn/test_registration.py": {"rung"},
    "tests/userflow/email/test_ownership.py": {"rung"},
    # This list.
    "tests/architecture/test_language.py": {*WORDS, *PHRASES},
}


def files() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    return [
        name
        for name in listed
        if name
        and Path(name).suffix in TEXTS
        and (ROOT / name).exists()
        and "/migrations/" not in name
        and not name.startswith("tests/data/")
    ]


def words_of(text: str) -> set[str]:
    """Return the words, those inside identifiers included, in lower case."""
    return set(re.findall(r"[a-z]+", re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text).lower()))


def banned(name: str) -> dict[str, str]:
    """Return the words and phrases of a file that are not allowed in it, with what to write instead."""
    text = (ROOT / name).read_text()
    found = {word: WORDS[word] for word in words_of(text) & WORDS.keys()}
    spaced = re.sub(r"\s+", " ", text)
    found |= {
        phrase: advice for phrase, advice in PHRASES.items() if re.search(rf"\b{phrase}\b", spaced, re.IGNORECASE)
    }
    return {words: advice for words, advice in found.items() if words not in ALLOWED.get(name, set())}


def test_texts_use_plain_words() -> None:
    found = {name: banned(name) for name in files()}
    assert {name: words for name, words in found.items() if words} == {}


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Yield the name of each variable, parameter, attribute, function and class, at every use."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case (
                ast.arg(arg=name)
                | ast.keyword(arg=str(name))
                | ast.alias(name=name, asname=None)
                | ast.alias(asname=str(name))
            ):
                yield name


def test_names_tell_what_they_are() -> None:
    lines, vague = 0, Counter[str]()
    for name in files():
        if name.endswith(".py") and name.startswith(PRODUCT) and "/migrations/" not in name:
            text = (ROOT / name).read_text()
            lines += text.count("\n")
            vague[name] = sum(identifier in VAGUE for identifier in identifiers(ast.parse(text)))
    assert vague.total() / lines * 1000 <= MOST_VAGUE, vague.most_common(10)


def test_vague_names_are_seen() -> None:
    names = identifiers(ast.parse("def own(kept):\n    print(f'{found.stated}', one=kept)"))
    assert sorted(set(names) & VAGUE) == ["found", "kept", "one", "own", "stated"]
