"""The documentation of the security model matches the action table of the code."""

import re

from django.conf import settings

from userflow.sessions.assurance import REQUIREMENTS

BEGIN = "<!-- actions: generated from userflow/sessions/assurance.py -->\n"
END = "<!-- actions: end -->"


def action_table() -> str:
    """Return the table of the page, generated from the action table."""
    rows = [
        f"| {row.summary} | {_yes(row.needs_proof)} | {_yes(row.rank)} | {_yes(row.clients)} |"
        for row in REQUIREMENTS.values()
    ]
    return "\n".join(
        ["| action | proof in the request | rank | applications by scope |", "|---|---|---|---|", *rows, ""]
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def test_documentation_shows_the_action_table() -> None:
    page = (settings.BASE_DIR / "docs" / "security-model.md").read_text()
    shown = page.partition(BEGIN)[2].partition(END)[0]
    assert shown == action_table(), f"Replace the table in docs/security-model.md by:\n{action_table()}"


def test_properties_name_tests_and_modules_that_exist() -> None:
    page = (settings.BASE_DIR / "docs" / "security-model.md").read_text()
    table = page.partition("## Properties\n")[2].partition("\n## ")[0]
    paths = re.findall(r"`((?:tests|userflow|tenants|openid)/[\w/.]+\.py)`", table)
    assert len(paths) > 20
    assert [path for path in paths if not (settings.BASE_DIR / path).is_file()] == []
    rows = [line for line in table.splitlines() if line.startswith("| ") and "|---" not in line][1:]
    assert [row for row in rows if "`tests/" not in row] == []
