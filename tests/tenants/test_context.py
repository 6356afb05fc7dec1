"""Tenant models use the entered tenant only, and fail without one."""

import threading
from uuid import uuid4

import pytest
from django.db import connections, transaction

from tenants.entering.context import in_tenant, tenant_atomic
from tenants.errors import NoActiveTenant, TenantSwitchInTransaction, UnknownTenant
from tests.world import TestTenant
from userflow.accounts.models import EndUser


def test_tenant_model_without_tenant_raises() -> None:
    with pytest.raises(NoActiveTenant):
        EndUser.objects.count()


def test_tenant_atomic_without_tenant_raises() -> None:
    with pytest.raises(NoActiveTenant):
        tenant_atomic()


def test_atomic_on_tenant_alias_without_tenant_raises() -> None:
    with pytest.raises(NoActiveTenant), transaction.atomic(using="tenant"):
        pass


def test_unknown_tenant_is_rejected() -> None:
    with pytest.raises(UnknownTenant), in_tenant(uuid4()):
        pass


def test_leaving_block_exits_tenant(tenant: TestTenant) -> None:
    with in_tenant(tenant.id):
        EndUser.objects.count()
    with pytest.raises(NoActiveTenant):
        EndUser.objects.count()


def test_error_exits_tenant(tenant: TestTenant) -> None:
    with pytest.raises(ZeroDivisionError), in_tenant(tenant.id), tenant_atomic():
        1 / 0  # noqa: B018  # raises
    with pytest.raises(NoActiveTenant):
        EndUser.objects.count()


def test_each_tenant_sees_its_own_users(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person, other_person = tenant.register(), other_tenant.register()
    with in_tenant(tenant.id):
        assert set(EndUser.objects.filter(pk__in=[person.id, other_person.id]).values_list("pk", flat=True)) == {
            person.id
        }
        with in_tenant(other_tenant.id):
            assert EndUser.objects.filter(pk=other_person.id).exists()
            assert not EndUser.objects.filter(pk=person.id).exists()
        assert EndUser.objects.filter(pk=person.id).exists()


def test_entering_other_tenant_inside_transaction_raises(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person = tenant.register()
    with in_tenant(tenant.id), tenant_atomic():
        with pytest.raises(TenantSwitchInTransaction), in_tenant(other_tenant.id):
            pass
        EndUser.objects.filter(pk=person.id).update(name="Still Here")
    with in_tenant(tenant.id):
        assert EndUser.objects.get(pk=person.id).name == "Still Here"


def test_same_tenant_can_be_reentered_inside_transaction(tenant: TestTenant) -> None:
    with in_tenant(tenant.id), tenant_atomic(), in_tenant(tenant.id):
        assert EndUser.objects.count() >= 0


def test_exit_inside_transaction_rolls_back_and_closes(tenant: TestTenant) -> None:
    person = tenant.register()
    block = transaction.atomic(using="tenant")

    def leave_too_early() -> None:
        with in_tenant(tenant.id):
            block.__enter__()
            EndUser.objects.filter(pk=person.id).update(name="Never Written")

    with pytest.raises(TenantSwitchInTransaction):
        leave_too_early()
    with pytest.raises(NoActiveTenant):
        EndUser.objects.count()
    block.__exit__(None, None, None)
    with in_tenant(tenant.id):
        assert EndUser.objects.get(pk=person.id).name != "Never Written"


def test_thread_does_not_inherit_tenant(tenant: TestTenant) -> None:
    found: list[BaseException] = []

    def look() -> None:
        try:
            EndUser.objects.count()
        except NoActiveTenant as error:
            found.append(error)
        finally:
            connections.close_all()

    with in_tenant(tenant.id):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert len(found) == 1
