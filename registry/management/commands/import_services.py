from collections.abc import Mapping

from registry.transfer.importing import import_services
from tenants.management.transfers import ImportCommand, Importer


class Command(ImportCommand):
    help = (
        "Import services from CSV or JSON lines into a tenant's registry. Fields: name, type, base_url, and optionally "
        "description, api_version, status, metadata, created_at, id. Rows of JSON lines with the kind `credential` hold "
        "secrets, which are sealed under this tenant's key. Invalid rows are skipped and listed in the report. Run the same "
        "command again to continue an interrupted import. Exit code 0: all rows were imported; 1: some were not; 2: nothing "
        "was tried. Example: import_services acme services.jsonl --on-conflict skip"
    )

    def importer(self, options: Mapping[str, object]) -> Importer:
        return import_services
