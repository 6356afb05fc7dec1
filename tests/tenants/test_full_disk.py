"""A full disk stops work that had begun: commands exit with 1, not with 2 (nothing was tried)."""

from pathlib import Path

import pytest
from django.core.management import CommandError

from tenants.management import terminal


def test_full_disk_ends_commands_with_exit_code_1() -> None:
    full = Path("/dev/full")
    with (
        pytest.raises(CommandError, match="/dev/full: No space left on device") as ended,
        terminal.file_errors(full) as path,
        path.open("w") as file,
    ):
        file.write("x")
    assert ended.value.returncode == 1


def test_missing_file_ends_commands_with_exit_code_2(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as ended, terminal.file_errors(tmp_path / "none") as path:
        path.read_bytes()
    assert ended.value.returncode == terminal.NOT_TRIED
