"""`import_services`: services of a file into a tenant's registry."""

from collections.abc import Mapping
from typing import Any

from identity_platform.transfer.report import Report, Tally
from registry.transfer.importing import import_services
from tenants.management.transfers import ImportCommand


class Command(ImportCommand):
    help = (
        "Bring services from CSV or JSON lines into a tenant's registry. Members: name, type, base_url, and if wanted "
        "description, api_version, status, metadata, created_at, id; rows of JSON lines of the kind `credential` bind "
        "secrets, sealed under this tenant's key. A bad row stays out and stands in the report, the others come in. A "
        "killed import goes on where it was when the same command is run again. Exit code 0: all rows are in; 1: some "
        "are not; 2: nothing was tried. Example: import_services acme services.jsonl --on-conflict skip"
    )
    what = "rows"

    def bring_in(self, stated: Mapping[str, object], **how: Any) -> tuple[Tally, Report]:
        return import_services(**how)
