"""Message catalogues and the texts in code and templates that they must translate. Needs no gettext tools."""

import ast
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from django.utils.translation.template import templatize

ROOT: Final = Path(__file__).parents[1]
CALLS: Final = {"_", "gettext", "gettext_lazy", "gettext_noop"}
PLURAL_CALLS: Final = {"ngettext", "ngettext_lazy"}
CONTEXT_CALLS: Final = {"pgettext", "pgettext_lazy"}
_STRING = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_ENTRY = re.compile(rf"^(msgctxt|msgid|msgid_plural|msgstr|msgstr\[[0-9]\]) ({_STRING}(?:\n{_STRING})*)$", re.MULTILINE)


def source_entries(catalogue: Path) -> dict[str, str]:
    """Read a .po file. As in a .mo file, NUL joins plural forms and EOT follows a context."""
    entries: dict[str, str] = {}
    key = context = ""
    for kind, literal in _ENTRY.findall(catalogue.with_suffix(".po").read_text()):
        text = ast.literal_eval(f"({literal})")
        if kind == "msgctxt":
            context = f"{text}\4"
        elif kind == "msgid":
            key, context = context + text, ""
            assert key not in entries
        elif kind == "msgid_plural":
            key += "\0" + text
        else:
            entries[key] = f"{entries[key]}\0{text}" if key in entries else text
    return entries


def compiled_entries(catalogue: Path) -> dict[str, str]:
    """Read a .mo file (GNU gettext manual, section 10.3)."""
    data = catalogue.with_suffix(".mo").read_bytes()
    magic, _revision, count, keys, values = struct.unpack_from("<5I", data)
    assert magic == 0x950412DE

    def text(table: int, index: int) -> str:
        length, start = struct.unpack_from("<2I", data, table + 8 * index)
        return data[start : start + length].decode()

    return {text(keys, index): text(values, index) for index in range(count)}


def messages_of(code_files: Iterable[Path], template_files: Iterable[Path]) -> set[str]:
    """Return the messages of these files, as the keys of `source_entries`."""
    # The output of `templatize` is calls between words: only the calls can be parsed.
    names = "|".join(CALLS | PLURAL_CALLS | CONTEXT_CALLS)
    call = re.compile(rf"\b(?:{names})\(\s*(?:u?{_STRING}\s*,?\s*)+")
    templates = [f"{found})" for path in template_files for found in call.findall(templatize(path.read_text()))]
    found: set[str] = set()
    for source in (*(path.read_text() for path in code_files), *templates):
        found |= {message for node in ast.walk(ast.parse(source)) if (message := _message(node)) is not None}
    return found


def _message(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    texts = [value.value for value in node.args if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    if name in CALLS and texts:
        return texts[0]
    if name in PLURAL_CALLS:
        return "\0".join(texts[:2])
    return "\4".join(texts[:2]) if name in CONTEXT_CALLS else None
