"""The results of the newest run of each plan: JSON and screenshots in results/, and the tables of docs/conformance.md."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.conformance.modules import Outcome
from tests.conformance.plans import PLANS, Plan

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "conformance.md"
# The suite explains a warning in several sentences; the raw result has all of them.
MOST_CHARACTERS = 240


def store(key: str, plan: Plan, outcomes: Sequence[Outcome], suite: dict[str, Any]) -> None:
    """Replace the result of a plan, with the screenshots of its modules."""
    RESULTS.mkdir(exist_ok=True)
    for screenshot in RESULTS.glob(f"{key}.*.png"):
        screenshot.unlink()
    modules = []
    for outcome in outcomes:
        names = [f"{key}.{outcome.module}.{number}.png" for number in range(1, len(outcome.screenshots) + 1)]
        for name, png in zip(names, outcome.screenshots, strict=True):
            (RESULTS / name).write_bytes(png)
        modules.append(
            {
                "module": outcome.module,
                "variant": outcome.variant,
                "result": outcome.result,
                "reasons": outcome.reasons,
                "seconds": outcome.seconds,
                "screenshots": names,
            }
        )
    result = {
        "plan": plan.name,
        "title": plan.title,
        "variant": plan.variant,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "suite": {"version": suite["version"], "commit": suite["revision"]},
        "modules": modules,
    }
    (RESULTS / f"{key}.json").write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def commit() -> str:
    """Return the commit of this checkout, which is the platform's."""
    run = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return run.stdout.strip()


def write_page() -> None:
    """Write the tables of all stored results into docs/conformance.md."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(text, tables()), encoding="utf-8")


def filled(text: str, block: str) -> str:
    """Return the page with this block between the markers of `bin/conformance`."""
    pattern = re.compile(r"(<!-- bin/conformance writes results -->\n).*?(<!-- results: end -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{block}{match[2]}", text)


def tables() -> str:
    """Return one section for each plan that has a result, in the order of `PLANS`."""
    files = [RESULTS / f"{key}.json" for key in PLANS]
    return "".join(section(json.loads(file.read_text(encoding="utf-8"))) for file in files if file.exists())


def section(result: dict[str, Any]) -> str:
    """Return the heading and the table of a plan."""
    counts = Counter(module["result"] for module in result["modules"])
    summary = ", ".join(f"{number} {name.lower()}" for name, number in counts.most_common())
    rows = "".join(
        f"| `{module['module']}` | {module['result'].lower()} | {reason(module)} |\n" for module in result["modules"]
    )
    suite = result["suite"]
    return (
        f"### {result['title']}\n\n"
        f"`{result['plan']}`, {result['date']}, platform `{result['commit']}`, suite {suite['version']} "
        f"(`{suite['commit']}`): {summary}.\n\n"
        f"| module | result | reason |\n|---|---|---|\n{rows}\n"
    )


def reason(module: dict[str, Any]) -> str:
    """Return why the module has its result, in a cell of a table."""
    texts = [shortened(text) for text in module["reasons"]]
    if module["screenshots"]:
        texts.append("a person compares the screenshot: " + ", ".join(f"`{name}`" for name in module["screenshots"]))
    return "; ".join(texts).replace("|", "\\|").replace("<", "&lt;") or "–"


def shortened(text: str) -> str:
    """Return the first sentence of a text, or its beginning."""
    sentence = re.split(r"(?<=[.!?]) ", text, maxsplit=1)[0]
    return sentence if len(sentence) <= MOST_CHARACTERS else sentence[: MOST_CHARACTERS - 1] + "…"
