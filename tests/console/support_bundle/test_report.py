"""`doctor`: what its report says about a platform that works, and about one that does not."""

import json
import secrets
import stat
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils.timezone import now
from procrastinate.contrib.django.models import ProcrastinateEvent, ProcrastinateJob

from console.jobs.models import FAILED, Job
from console.metrics.models import TenantFigures
from identity_platform import task_queue
from identity_platform.installation import VERSION
from tenants.database_servers import servers
from tenants.models import DatabaseServer
from tests.world import TestTenant
from userflow.mail.models import PlatformMail

SECTIONS = {
    *("versions", "settings", "cache", "global database", "checks", "database servers", "tenants", "sizes", "tasks"),
    *("attention", "last failures"),
}


def examine(folder: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Return exit code, summary and sections."""
    file, out, code = folder / f"{secrets.token_hex(4)}.json", StringIO(), 0
    try:
        call_command("doctor", "--output", str(file), *options, stdout=out)
    except SystemExit as ended:
        code = int(str(ended.code))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    document = json.loads(file.read_text())
    assert document["healthy"] == (code == 0)
    return code, out.getvalue(), document["sections"]


@pytest.fixture
def silent() -> Iterator[DatabaseServer]:
    """A registered server at a port where nothing listens."""
    name = f"silent-{secrets.token_hex(3)}"
    url = "postgresql://ann:p4ssw0rd-of-server@127.0.0.1:1/"
    sealed = servers.seal_url(name, "url_sealed", url)
    server = DatabaseServer.objects.create(name=name, host="127.0.0.1", url_sealed=sealed, accepts_tenants=False)
    yield server
    server.delete()


def test_report_has_versions_health_and_sizes(tenant: TestTenant, tmp_path: Path) -> None:
    _, summary, sections = examine(tmp_path)
    assert sections.keys() == SECTIONS
    facts = {name: section["facts"] for name, section in sections.items()}
    assert facts["versions"]["release"] == VERSION
    assert facts["versions"]["packages"]["Django"].startswith("5.2.")
    assert facts["cache"]["redis_version"]
    assert facts["global database"]["postgresql"] == facts["database servers"]["servers"][0]["postgresql"]
    assert facts["global database"]["pending_migrations"] == []
    assert facts["sizes"]["tenants"]["active"] >= 1
    assert sections["versions"]["problems"] == sections["global database"]["problems"] == []
    assert "cache            ok\n" in summary


def test_report_names_a_silent_server(silent: DatabaseServer, tmp_path: Path) -> None:
    code, summary, sections = examine(tmp_path, "--skip-tenants")
    assert code == 1
    problem = f"{silent.name}: the database does not answer"
    assert sections["database servers"]["problems"] == [problem]
    assert f"database servers 1 problem\n  ! {problem}\n" in summary
    assert "p4ssw0rd" not in json.dumps(sections) + summary
    # The others are examined all the same, except what the option leaves out.
    assert sections.keys() == SECTIONS - {"tenants"}
    assert sections["global database"]["problems"] == []


def test_report_has_failed_jobs_and_waiting_tasks(tmp_path: Path) -> None:
    job = Job.objects.create(kind="move", state=FAILED, reason="No space is left.", ended_at=now())
    ProcrastinateJob._base_manager.all().delete()
    task_queue.run_soon("check_database_servers")
    try:
        _, summary, sections = examine(tmp_path, "--skip-tenants")
    finally:
        job.delete()
        ProcrastinateJob._base_manager.all().delete()
    assert "No space is left." in [each["reason"] for each in sections["last failures"]["facts"]["jobs"]]
    assert "Jobs that failed in the last seven days or were interrupted: " in summary
    assert sections["tasks"]["facts"]["queues"] == [{"queue": task_queue.PERIODIC, "waiting": 1, "running": 0}]
    assert sections["tasks"]["problems"] == ["1 task waits and no tenant_worker runs. Start one."]


@pytest.fixture
def failures(tenant: TestTenant) -> Iterator[str]:
    """Failures of each kind, whose arguments, recipients and contents hold the returned text."""
    hidden = f"hidden-{secrets.token_hex(8)}"
    params = {"email": f"{hidden}@example.com", "token": hidden}
    job = Job.objects.create(kind="move", state=FAILED, reason="The copy ended.", params=params, ended_at=now())
    mail = PlatformMail.objects.create(
        template="reset",
        address=f"{hidden}@example.com",
        content_sealed=hidden.encode(),
        status=PlatformMail.DEAD,
        attempts=5,
        last_error="status 550",
        expires_at=now(),
        settled_at=now(),
    )
    task = ProcrastinateJob(
        queue_name="console", task_name="run_job", priority=0, args=params, status="failed", attempts=1
    )
    task.abort_requested = False
    ProcrastinateJob._base_manager.bulk_create([task])
    ProcrastinateEvent._base_manager.bulk_create([ProcrastinateEvent(job=task, type="failed", at=now())])
    figures, _ = TenantFigures.objects.update_or_create(
        tenant_id=tenant.id, defaults={"needs_attention": True, "failing_endpoints": 3, "dead_mails": 2}
    )
    yield hidden
    for row in (job, mail, figures):
        row.delete()
    ProcrastinateJob._base_manager.filter(pk=task.pk).delete()


def test_report_has_the_last_failures_without_whom_they_concern(
    failures: str, tenant: TestTenant, tmp_path: Path
) -> None:
    _, summary, sections = examine(tmp_path, "--skip-tenants")
    facts = sections["last failures"]["facts"]
    assert "The copy ended." in [job["reason"] for job in facts["jobs"]]
    assert facts["tasks"][0]["task"] == "run_job"
    assert facts["mails of the platform"][0]["last_error"] == "status 550"
    (undelivered,) = [row for row in facts["mails and webhooks of tenants"] if row["tenant__slug"] == tenant.slug]
    assert (undelivered["failing_endpoints"], undelivered["dead_mails"]) == (3, 2)
    written = json.dumps(sections) + summary
    assert failures not in written
    assert failures.encode().hex() not in written


def test_report_replaces_no_file(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text("kept")
    with pytest.raises(CommandError, match=r"report\.json: File exists") as problem:
        call_command("doctor", "--output", str(file), "--skip-tenants", stdout=StringIO())
    assert (problem.value.returncode, file.read_text()) == (2, "kept")
