"""Folders that root makes belong to the service's user, if the folder around them does."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from django.core.exceptions import ImproperlyConfigured

from identity_platform.environment import ensure_writable
from identity_platform.folders import make_folder
from tests.registry.processes import environment
from tests.tenants.conftest import run_command
from tests.world import TestTenant

ROOT = Path(__file__).parents[2]
# As another user there is nothing to give away: the folders are the user's own.
IS_ROOT = os.geteuid() == 0
SERVICE = 65534 if IS_ROOT else os.geteuid()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of the service's user, as IDENTITY_VAR."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    if IS_ROOT:
        os.chown(folder, SERVICE, SERVICE)
    return folder


def owners(folder: Path) -> set[int]:
    return {path.stat().st_uid for path in (folder, *folder.rglob("*"))}


def test_each_missing_folder_is_given_to_the_owner_of_its_parent(home: Path) -> None:
    make_folder(home / "metrics" / "of" / "a command")
    assert owners(home) == {SERVICE}
    assert (home / "metrics").stat().st_mode & 0o777 == 0o700


def test_link_in_the_place_of_a_folder_is_not_given_away(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "of root"
    target.mkdir()
    (home / "backups").symlink_to(target)
    make_folder(home / "backups" / "new")
    assert owners(target) == {os.geteuid()}


def test_command_leaves_folders_that_the_service_can_write_to(home: Path, django_db_setup: None) -> None:
    command = [sys.executable, "manage.py", "list_tenants"]
    variables = environment(IDENTITY_VAR=str(home)) | {"PROMETHEUS_MULTIPROC_DIR": ""}
    subprocess.run(command, env=variables, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert (home / "metrics").stat().st_uid == SERVICE


def test_backups_of_root_can_be_read_and_removed_by_the_service(home: Path, tenant: TestTenant) -> None:
    run_command("backup_tenants", str(home / "backups"), only=[tenant.slug], test=0)
    assert any((home / "backups").glob("platform-*/*.backup"))
    assert owners(home / "backups") == {SERVICE}


def test_folder_of_another_user_is_named_with_what_to_do() -> None:
    with TemporaryDirectory() as folder:
        # Made by root; read-only where the tests run as another user.
        os.chmod(folder, 0o700 if IS_ROOT else 0o500)
        os.seteuid(SERVICE)
        try:
            with pytest.raises(
                ImproperlyConfigured, match=r"IDENTITY_VAR: the folder .* cannot be written to"
            ) as rejected:
                ensure_writable(Path(folder), "IDENTITY_VAR")
        finally:
            os.seteuid(os.getuid())
            os.chmod(folder, 0o700)
    assert (f"chown -R USER {folder}" in str(rejected.value)) is IS_ROOT
