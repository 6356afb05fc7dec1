"""Where the specification does not tell people apart, the time does not either."""

import secrets
import statistics
import time
from collections.abc import Callable
from typing import Any

from tenants.context import in_tenant
from tests.mfa.people import Somebody, somebody
from tests.world import Api, House
from userflow.realms import END_USERS

ROUNDS = 60


def tries_are_forgotten(house: House) -> None:
    with in_tenant(house.id):
        END_USERS.attempts._default_manager.all().delete()


def medians(house: House, *calls: Callable[[], Any]) -> list[float]:
    """The median time of each call, taken in turns so that the machine's moods meet all of them."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(ROUNDS):
        tries_are_forgotten(house)
        # The order changes, or the first of each turn would always find the coldest cache.
        for index in range(len(calls)) if turn % 2 else reversed(range(len(calls))):
            began = time.perf_counter()
            assert calls[index]().status_code == 400
            times[index].append(time.perf_counter() - began)
    return [statistics.median(found) for found in times]


def verify_of(path: str, body: dict[str, Any]) -> Callable[[], Any]:
    return lambda: Api().post(f"/webauthn/{path}", {**body, "code": "000000"})


def test_verifying_takes_as_long_without_a_factor_as_with_one(new_house: Any) -> None:
    own = new_house()
    with_factor, without = somebody(own).enrol_totp(), somebody(own)
    slow, fast = medians(own, verify_of("totp/verify", with_factor.name), verify_of("totp/verify", without.name))
    assert 0.75 < slow / fast < 1.34


def test_verifying_sms_takes_as_long_for_nobody_as_for_somebody_without_a_phone(new_house: Any) -> None:
    own = new_house()
    known: Somebody = somebody(own)
    nobody = {**known.named_with_client, "email": f"nobody-{secrets.token_hex(4)}@example.com"}
    slow, fast = medians(own, verify_of("sms/verify", known.named_with_client), verify_of("sms/verify", nobody))
    assert 0.75 < slow / fast < 1.34
