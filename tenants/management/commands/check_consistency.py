import sys
from argparse import ArgumentParser
from json import dumps

from tenants.consistency import examination
from tenants.consistency.examination import Examined
from tenants.consistency.findings import MOST_IDS, Finding
from tenants.management import terminal

SHOWN_IDS = 3


class Command(terminal.OperatorCommand):
    help = (
        "Find what the tenants' databases and the global one contradict each other in, as after one of them was restored to "
        "another moment: references to rows that are gone, keys that do not open what is sealed, wrong counters, "
        "unrecorded domains. Tenants stay in use, and nothing is changed without --repair. Exit code 0: nothing was found; "
        "1: something was found, or is left after the repair; 3: nothing was found, but a tenant could not be examined. "
        "Example: check_consistency --tenant acme --repair"
    )
    after_interruption = terminal.STARTS_OVER

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--tenant",
            metavar="TENANT",
            action="append",
            default=[],
            help="Slug or id of a tenant, or `platform`; can be repeated (default: the platform and all tenants).",
        )
        terminal.add_jobs(parser)
        parser.add_argument(
            "--repair", action="store_true", help="Repair what does not need a decision of an operator."
        )
        parser.add_argument(
            "--overwrite-newer",
            action="store_true",
            help="With --repair: also replace copies in the tenants' databases that are newer than the global rows, after a "
            "restore of the global database whose lost changes are given up.",
        )
        parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation.")
        parser.add_argument("--json", action="store_true", help="Print one JSON list, with all ids.")

    def handle(
        self,
        *,
        tenant: list[str],
        jobs: int,
        repair: bool,
        overwrite_newer: bool,
        yes: bool,
        json: bool,
        **_: object,
    ) -> None:
        results = self._examine(tenant, jobs, quiet=json)

        def is_mendable(finding: Finding) -> bool:
            return finding.repair is not None or (overwrite_newer and finding.overwrite is not None)

        if repair and (mendable := [result for result in results if any(map(is_mendable, result.findings))]):
            findings = [(result, finding) for result in mendable for finding in result.findings if is_mendable(finding)]
            self._repair(mendable, findings, overwrite_newer=overwrite_newer, yes=yes, quiet=json)
            names = [str(result.owner.tenant_id or result.owner.name) for result in mendable]
            again = {result.owner: result for result in self._examine(names, jobs, quiet=json)}
            results = [again.get(result.owner, result) for result in results]
        if json:
            self.stdout.write(dumps([entry for result in results for entry in _entries(result)]))
        else:
            self._show(results)
        if any(result.findings for result in results):
            sys.exit(1)
        sys.exit(terminal.UNREACHABLE if any(result.problem for result in results) else 0)

    def _examine(self, tenants: list[str], jobs: int, *, quiet: bool) -> list[Examined]:
        if quiet:
            return examination.examine_all(tenants, jobs=jobs)
        with terminal.progress(self.stdout, "Examining") as (start, step):
            return examination.examine_all(tenants, jobs=jobs, start=start, progress=lambda result: step(_line(result)))

    def _repair(
        self,
        results: list[Examined],
        findings: list[tuple[Examined, Finding]],
        *,
        overwrite_newer: bool,
        yes: bool,
        quiet: bool,
    ) -> None:
        if not quiet:
            self._show(results)
        terminal.confirm(
            self.stderr if quiet else self.stdout,
            f"{terminal.counted(len(findings), 'finding')} will be repaired.",
            "repair",
            yes=yes,
        )
        for result, finding in findings:
            said = examination.repair(result.owner, finding, overwrite_newer=overwrite_newer) or "repaired"
            (self.stderr if quiet else self.stdout).write(f"{result.owner.name}: {finding.kind}: {said}")

    def _show(self, results: list[Examined]) -> None:
        rows = [(result.owner.name, *_cells(finding)) for result in results for finding in result.findings]
        if rows:
            terminal.table(self.stdout, ("tenant", "finding", "count", "ids", "meaning", "what to do"), rows)
        unread = [result for result in results if result.problem]
        for result in unread:
            self.stderr.write(f"{result.owner.name}: not examined, {result.problem}")
        if not rows and not unread:
            self.stdout.write("No contradictions found.")


def _line(result: Examined) -> str:
    if result.problem:
        return f"{result.owner.name}: not examined, {result.problem}"
    return f"{result.owner.name}: {terminal.counted(len(result.findings), 'finding')}"


def _cells(finding: Finding) -> tuple[str, ...]:
    ids = list(finding.rows)
    shown = ", ".join(ids[:SHOWN_IDS]) + (f" and {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else "")
    more = " or more" if len(ids) >= MOST_IDS else ""
    return finding.kind, f"{finding.count}{more}", shown, finding.meaning, finding.remedy


def _entries(result: Examined) -> list[dict[str, object]]:
    about: dict[str, object] = {
        "tenant": result.owner.name,
        "tenant_id": str(result.owner.tenant_id) if result.owner.tenant_id else None,
    }
    if result.problem:
        return [about | {"problem": result.problem}]
    return [
        about
        | {
            "finding": finding.kind,
            "count": finding.count,
            "ids": list(finding.rows),
            "meaning": finding.meaning,
            "remedy": finding.remedy,
            "repairable": finding.repair is not None,
        }
        for finding in result.findings
    ]
