"""A running `deliver_events` leaves connections to tenants' databases to requests."""

import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from django.utils.timezone import now

from tenants.database_servers import servers
from tenants.lifecycle.capacity import main_server
from tenants.models import WebhookTenant
from tests.machine.conftest import within
from tests.registry.processes import ROOT, environment
from tests.world import TestTenant
from userflow.events import wakeups

# A connection that asks the server for its limit is closed at once.
KEPT = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = %s AND datname = %s AND state = 'idle' AND state_change < now() - interval '1 second'
"""


def test_deliverer_closes_the_connection_that_it_does_not_use(
    tmp_path: Path, new_tenant: Callable[[], TestTenant]
) -> None:
    tenant = new_tenant()
    name, database = f"deliverer-{secrets.token_hex(4)}", tenant.row.database.name
    variables = environment(DJANGO_SETTINGS_MODULE="tests.tenants.leasing.short_leases")
    # The tenants of other tests are left alone: their connections would replace this one.
    WebhookTenant.objects.update(swept_at=now())
    variables["WEBHOOK_SWEEP_SECONDS"] = "3600"
    variables["DATABASE_URL"] += f" application_name={name}"

    def kept() -> int:
        with servers.maintenance(main_server()) as raw:
            return int(raw.execute(KEPT, [name, database]).fetchall()[0][0])

    def keeps_one() -> bool:
        # A deliverer of another test may have taken the tenant.
        wakeups.wake(tenant.id, seconds=0)
        return within(3, lambda: kept() > 0)

    log = tmp_path / "deliverer.log"
    with log.open("w") as lines:
        command = [sys.executable, "manage.py", "deliver_events"]
        deliverer = subprocess.Popen(command, env=variables, cwd=ROOT, stdout=lines, stderr=lines)
    try:
        assert within(60, lambda: "Ready." in log.read_text()), log.read_text()
        assert within(60, keeps_one), log.read_text()
        # Five seconds later, at the next renewal of its leases.
        assert within(20, lambda: kept() == 0)
    finally:
        deliverer.terminate()
        deliverer.wait(20)
