"""The old release serves a tenant that the new one has migrated, until its instances are replaced."""

from collections.abc import Callable

from tenants.entering.context import in_tenant
from tests.tenants.conftest import AnotherProcess
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


def test_user_of_a_release_that_does_not_know_the_index_is_indexed(new_tenant: Callable[[], TestTenant]) -> None:
    tenant, email = new_tenant(), "meanwhile@example.com"
    with in_tenant(tenant.id):
        person = EndUser.objects.create(email=email, email_key=email)
    # By the triggers.
    assert indexed(tenant, email) == [person.pk]
