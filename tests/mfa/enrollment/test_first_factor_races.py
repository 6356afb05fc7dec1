"""The first factor is confirmed while a window, a ticket and another session are used for the same.

In any order, one proof wins, and what was issued to a user without a factor ends with it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pyotp
import pytest

from tests.mfa.people import TestUser, new_user
from tests.parallel import ROUNDS, run_concurrently
from tests.userflow.sessions.test_refresh import refresh
from tests.world import Api, TestTenant

CONFIRM = "/webauthn/totp/confirmSetup"


def works(token: str) -> bool:
    return bool(Api(token=token).get("/authmgr/validate").status_code == 200)


def confirmation(ann: TestUser, secret: str, **how: Any) -> Callable[[], Any]:
    return partial(ann.api.post, CONFIRM, {**ann.name, "secret": secret, "code": pyotp.TOTP(secret).now()}, **how)


def begins(ann: TestUser, **how: Any) -> bool:
    return bool(ann.api.post("/webauthn/enduser/beginRegistration", ann.name, **how).status_code == 200)


@pytest.mark.timeout(600)
def test_first_factor_has_one_winner_and_ends_the_rest(tenant: TestTenant) -> None:
    for _ in range(ROUNDS):
        ann = new_user(tenant)
        first = ann.sign_in(ann.api)
        session, ticket = first.json(), first.headers["X-Enrollment-Ticket"]
        proofs: dict[str, dict[str, Any]] = {
            "window": {},
            "ticket": {"headers": {"X-Enrollment-Ticket": ann.ticket}},
            "session": {"token": session["access_token"]},
        }
        secret = ann.api.post("/webauthn/totp/beginSetup", ann.name).json()["secret"]
        calls = [confirmation(ann, secret, **how) for how in proofs.values()]
        responses = run_concurrently([*calls, partial(refresh, session["refresh_token"])])
        refreshed = responses.pop()
        winners = [proof for proof, response in zip(proofs, responses, strict=True) if response.status_code == 200]
        assert len(winners) == 1, [response.content for response in responses]
        assert max(response.status_code for response in [*responses, refreshed]) < 500
        assert ann.row().mfa_methods == ["totp", "backup_code"]
        own = winners == ["session"]
        assert works(session["access_token"]) is own
        if refreshed.status_code == 200:
            assert works(refreshed.json()["access_token"]) is own
        assert begins(ann) is False
        assert begins(ann, headers={"X-Enrollment-Ticket": ticket}) is False
        # The ticket that enrolled the first factor may add one more kind.
        assert begins(ann, headers={"X-Enrollment-Ticket": ann.ticket}) is (winners == ["ticket"])
