from typing import Final

from django.utils.translation import gettext as _

from console.frame.records import NOTHING
from tenants.entering.schema import schema_version
from tenants.models import Tenant
from tenants.states import State

# As unfold names the colours of its labels.
STATE_COLOURS: Final[dict[str, str]] = {
    State.PROVISIONING: "info",
    State.ACTIVE: "success",
    State.SUSPENDED: "warning",
    State.MIGRATING: "info",
    State.MOVING: "info",
    State.FAILED: "danger",
    State.DELETING: "danger",
}


def is_current(tenant: Tenant) -> bool:
    """Return whether the tenant's database has the schema of this release."""
    return tenant.database.schema_version == schema_version()


def size_label(size: int | None) -> str:
    """Return a readable database size, or a dash if it is unknown."""
    if not size:
        return "–"
    number, unit = (f"{size / 1e9:.1f}", "GB") if size >= 1_000_000_000 else (f"{size / 1e6:.0f}", "MB")
    return f"{number}\N{NO-BREAK SPACE}{unit}"


def setting_label(value: object) -> str:
    """Return a readable value of a setting, or a dash for none."""
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if value is not None and text else NOTHING
