from typing import Final

from django.utils.translation import gettext_lazy as _

from tenants.models import Tenant
from tenants.schema import schema_version
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
STATE_NAMES: Final = {
    State.PROVISIONING: _("provisioning"),
    State.ACTIVE: _("active"),
    State.SUSPENDED: _("suspended"),
    State.MIGRATING: _("migrating"),
    State.MOVING: _("moving"),
    State.FAILED: _("failed"),
    State.DELETING: _("deleting"),
    State.DELETED: _("deleted"),
}


def state_label(state: str) -> str:
    """Return the translated label of a state."""
    return str(STATE_NAMES[State(state)])


def is_current(tenant: Tenant) -> bool:
    """Return whether the tenant's database has the schema of this release."""
    return tenant.database.schema_version == schema_version()


def size_label(size: int | None) -> str:
    """Return a readable database size, or a dash if it is unknown."""
    if not size:
        return "–"
    number, unit = (f"{size / 1e9:.1f}", "GB") if size >= 1_000_000_000 else (f"{size / 1e6:.0f}", "MB")
    return f"{number}\N{NO-BREAK SPACE}{unit}"
