"""Rejections that take whole steps of time."""

import time
from collections.abc import Callable
from uuid import uuid4

import pytest

from identity_platform.api.response_time import STEP_SECONDS, rounding
from tests.world import Api, TestTenant


class Rejected(Exception):
    """A rejection whose time must tell nothing."""


class Failed(Exception):
    """Another error."""


def test_rejection_takes_at_least_a_step() -> None:
    began = time.perf_counter()
    with pytest.raises(Rejected), rounding(Rejected) as state:
        raise Rejected
    assert state.rounds
    assert time.perf_counter() - began >= STEP_SECONDS


@rounding(Rejected)
def reject_late() -> None:
    time.sleep(STEP_SECONDS * 1.2)
    raise Rejected


def test_longer_rejection_takes_two_steps() -> None:
    began = time.perf_counter()
    with pytest.raises(Rejected):
        reject_late()
    assert time.perf_counter() - began >= 2 * STEP_SECONDS


def test_success_and_other_errors_are_not_delayed() -> None:
    with rounding(Rejected) as succeeded:
        pass
    with pytest.raises(Failed), rounding(Rejected) as failed:
        raise Failed
    assert (succeeded.rounds, failed.rounds) == (False, False)


def test_block_decides_to_take_whole_steps() -> None:
    began = time.perf_counter()
    with rounding() as state:
        state.rounds = True
    assert time.perf_counter() - began >= STEP_SECONDS


def wrong_code(tenant: TestTenant) -> int:
    body = {"tenant_id": str(tenant.id), "email": f"{uuid4()}@example.com", "code": "000000"}
    return Api().post("/uflow/user/email/verify", body).status_code


def wrong_password(tenant: TestTenant) -> int:
    body = {"client_id": str(tenant.client_id), "email": f"{uuid4()}@example.com", "password": "wrong horse 9"}
    return Api().post("/uflow/auth/enduser/login", body).status_code


def wrong_admin_password(tenant: TestTenant) -> int:
    return Api().post("/uflow/admin/auth/login", {"username": f"{uuid4()}", "password": "wrong horse 9"}).status_code


@pytest.mark.parametrize(
    ("call", "status"),
    [(wrong_code, 400), (wrong_password, 401), (wrong_admin_password, 401)],
    ids=["code", "password", "admin's password"],
)
def test_rejected_guess_takes_at_least_a_step(
    tenant: TestTenant, call: Callable[[TestTenant], int], status: int
) -> None:
    began = time.perf_counter()
    assert call(tenant) == status
    assert time.perf_counter() - began >= STEP_SECONDS
