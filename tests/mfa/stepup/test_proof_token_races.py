"""A proof token used several times at once, in different requests: one of them succeeds."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.parallel import ROUNDS, run_concurrently
from tests.world import PASSWORD, Api, TestTenant

AT_ONCE = 4
# A user may change the address five times an hour.
CHANGES_OF_ONE_USER = 4


def change(token: str, email: str, proof: str) -> Callable[[], Any]:
    return partial(Api(token=token).put, "/authmgr/profile", {"email": email, "proof_token": proof})


@pytest.mark.timeout(600)
def test_proof_token_has_one_winner(tenant: TestTenant) -> None:
    for number in range(ROUNDS):
        if number % CHANGES_OF_ONE_USER == 0:
            person = tenant.register()
            token = str(tenant.as_user(person).token)
        raised = Api(token=token).post("/authmgr/step-up", {"password": PASSWORD})
        assert raised.status_code == 200, raised.content
        token, proof = raised.json()["access_token"], raised.json()["proof_token"]
        wanted = [f"{number}-{one}-{person.email}" for one in range(AT_ONCE)]
        responses = run_concurrently([change(token, email, proof) for email in wanted])
        statuses = [response.status_code for response in responses]
        assert statuses.count(200) == 1, [response.content for response in responses]
        assert set(statuses) <= {200, 400, 401}
        assert Api(token=token).get("/authmgr/profile").json()["email"] == wanted[statuses.index(200)]
        assert change(token, person.email, proof)().status_code in (400, 401)
