"""What commands say when they are interrupted is what the next run does."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command, get_commands, load_command_class

from tenants.management import terminal
from tests.tenants.conftest import run_command
from tests.world import TestTenant

CONTINUES, STARTS_OVER = "Run the command again to continue", "The next run starts from the beginning"


class Interrupting(io.StringIO):
    """An output during whose first line the operator presses Ctrl-C."""

    def write(self, text: str) -> int:
        raise KeyboardInterrupt


def interrupted(*command: str, **options: object) -> str:
    with pytest.raises(CommandError) as ended:
        call_command(*command, stdout=Interrupting(), **options)
    assert ended.value.returncode == terminal.INTERRUPTED
    return str(ended.value)


def test_backup_leaves_nothing_and_starts_over(tenant: TestTenant, tmp_path: Path) -> None:
    said = interrupted("backup_tenants", str(tmp_path), only=[tenant.slug], test=0)
    assert STARTS_OVER in said
    assert list(tmp_path.iterdir()) == []


def test_restore_of_several_names_how_to_leave_out_the_restored(
    new_tenant: Callable[[], TestTenant], tmp_path: Path
) -> None:
    slug = new_tenant().slug
    run_command("backup_tenants", str(tmp_path), only=[slug], test=0)
    (folder,) = tmp_path.iterdir()
    said = interrupted("restore_tenants", str(folder), only=[slug], yes=True)
    assert "--lost" in said
    assert CONTINUES not in said


def test_export_starts_over(tenant: TestTenant) -> None:
    tenant.register()
    assert STARTS_OVER in interrupted("export_users", tenant.slug)


def test_commands_that_write_one_file_or_only_read_start_over() -> None:
    commands = {name: load_command_class(app, name) for name, app in get_commands().items() if "django" not in app}
    says = {
        name: command.after_interruption
        for name, command in commands.items()
        if isinstance(command, terminal.OperatorCommand)
    }
    assert {name for name, text in says.items() if text == terminal.STARTS_OVER} == {
        *("backup_tenant", "backup_tenants", "check_backup", "extract_global_backup"),
        *("restore_tenant", "restore_deleted_tenant"),
        *("export_audit", "export_users", "export_services"),
        *("check_consistency", "verify_audit", "doctor", "index_end_users"),
    }
    jobs = {
        "migrate_tenants",
        "create_tenant",
        "move_tenant",
        "delete_tenant",
        "purge_expired",
        "rotate_encryption_keys",
    }
    assert {says[name] for name in jobs} == {terminal.CONTINUES}
