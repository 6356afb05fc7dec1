"""Where the responses do not tell users apart, the time does not either."""

import secrets
import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest

from tenants.entering.context import in_tenant
from tests.mfa.people import TestUser, new_user, wrong_code
from tests.world import Api, TestTenant
from userflow.accounts.realms import END_USERS

ROUNDS = 60
# No caller can tell two responses within these ratios apart over a network. A real difference shows in every
# measurement, the load of another process in one.
ALIKE = (0.75, 1.34)
MEASUREMENTS = 6


def tries_are_forgotten(tenant: TestTenant) -> None:
    with in_tenant(tenant.id):
        END_USERS.attempts._default_manager.all().delete()


def ratio(tenant: TestTenant, one: Callable[[], Any], other: Callable[[], Any]) -> float:
    """How much longer `one` takes, measured in turns; again, up to some times, where a measurement says that it does."""
    found = 0.0
    for _ in range(MEASUREMENTS):
        found = _measured(tenant, one, other)
        if ALIKE[0] < found < ALIKE[1]:
            break
    return found


def _measured(tenant: TestTenant, *calls: Callable[[], Any]) -> float:
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(ROUNDS):
        tries_are_forgotten(tenant)
        # The order changes, or the first of each turn would always find the coldest cache.
        for index in range(len(calls)) if turn % 2 else reversed(range(len(calls))):
            began = time.perf_counter()
            assert calls[index]().status_code == 400
            times[index].append(time.perf_counter() - began)
    slow, fast = (statistics.quantiles(found)[0] for found in times)
    return slow / fast


def verify_of(path: str, body: dict[str, Any], code: str = "000000") -> Callable[[], Any]:
    return lambda: Api().post(f"/webauthn/{path}", {**body, "code": code})


@pytest.mark.quiet_machine
def test_verify_time_does_not_tell_who_has_factor(new_tenant: Any) -> None:
    own = new_tenant()
    with_factor, without = new_user(own).enrol_totp(), new_user(own)
    wrong = wrong_code(with_factor.secret)
    one, other = verify_of("totp/verify", with_factor.name, wrong), verify_of("totp/verify", without.name, wrong)
    found = ratio(own, one, other)
    assert ALIKE[0] < found < ALIKE[1]


@pytest.mark.quiet_machine
def test_sms_verify_time_does_not_tell_who_exists(new_tenant: Any) -> None:
    own = new_tenant()
    known: TestUser = new_user(own)
    missing = {**known.named_with_client, "email": f"unknown-{secrets.token_hex(4)}@example.com"}
    found = ratio(own, verify_of("sms/verify", known.named_with_client), verify_of("sms/verify", missing))
    assert ALIKE[0] < found < ALIKE[1]
