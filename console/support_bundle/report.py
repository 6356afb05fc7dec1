"""Collect the sections, and write them as text for people and as JSON for a file."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from django.utils.timezone import now

from console.support_bundle import sections
from console.support_bundle.redaction import without_secrets
from console.support_bundle.sections import Section
from tenants.failure_reasons import why

FORMAT: Final = 1
GLOBAL_DATABASE: Final = "global database"

Report = dict[str, Section]


def collect(*, skip_tenants: bool = False) -> Report:
    """Read every section. One that cannot be read says so, and does not stop the others."""
    report = {name: _read(read) for name, read in sections.LOCAL.items()}
    report[GLOBAL_DATABASE] = _read(sections.global_database)
    responds = bool(report[GLOBAL_DATABASE].facts)
    report["checks"] = _read(lambda: sections.system_checks(database=responds))
    for name, read in sections.OF_DATABASE.items():
        if name == "tenants" and skip_tenants:
            continue
        report[name] = _read(read) if responds else Section(notes=["Not read: it needs the global database."])
    return report


def _read(read: Callable[[], Section]) -> Section:
    try:
        return read()
    except Exception as problem:
        return Section(problems=[f"Could not be read: {why(problem)}."])


def is_healthy(report: Report) -> bool:
    return not any(section.problems for section in report.values())


def as_json(report: Report) -> str:
    """Return the report as JSON, without secrets."""
    document = {
        "format": FORMAT,
        "made_at": now(),
        "healthy": is_healthy(report),
        "sections": {name: asdict(section) for name, section in report.items()},
    }
    return json.dumps(without_secrets(document), indent=1, ensure_ascii=False) + "\n"


def as_text(report: Report) -> Iterator[str]:
    """Yield the lines of a summary, without secrets: one for each section, then its problems and notes."""
    for name, section in report.items():
        count = len(section.problems)
        yield f"{name:16} {'ok' if not count else f'{count} problem' + 's' * (count > 1)}"
        for mark, lines in (("!", section.problems), ("-", section.notes)):
            yield from (str(without_secrets(f"  {mark} {line}")) for line in lines)


def write(report: Report, file: Path) -> None:
    """Write the JSON to a new file that only this system user can read. Raises OSError."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(as_json(report))
