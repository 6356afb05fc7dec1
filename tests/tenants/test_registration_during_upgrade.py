"""The old release serves a tenant that the new one has migrated, until its instances are replaced."""

from collections.abc import Callable

from tenants.entering.context import in_tenant
from tests.tenants.conftest import AnotherProcess, run_command
from tests.userflow.user_index.reading import indexed
from tests.world import TestTenant
from userflow.accounts.models import EndUser


def test_user_who_registers_by_the_old_release_is_indexed(
    new_tenant: Callable[[], TestTenant], newer_release: AnotherProcess
) -> None:
    tenant = new_tenant()
    migrated = newer_release.run("migrate_tenants", "--only", tenant.slug)
    assert migrated.said.endswith("1 migrated, 0 skipped, 0 failed.\n")
    person = tenant.register()
    assert indexed(tenant, person.email) == [person.id]


def test_last_step_of_an_upgrade_indexes_users_of_a_release_without_the_index(
    new_tenant: Callable[[], TestTenant],
) -> None:
    tenant, email = new_tenant(), "meanwhile@example.com"
    with in_tenant(tenant.id):
        # As a release that does not know the index.
        person = EndUser.objects.create(email=email, email_key=email)
    assert indexed(tenant, email) == []
    run_command("index_end_users", tenant=[tenant.slug])
    assert indexed(tenant, email) == [person.pk]
