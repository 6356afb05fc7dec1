"""Refresh during a change of the policy: what comes out of it follows the policy that is in force afterwards."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db.models import F

from tenants.entering.context import in_tenant
from tests.parallel import ROUNDS, run_concurrently
from tests.userflow.sessions.test_refresh import refresh
from tests.world import Api, TestTenant, User, build_tenant
from userflow.accounts.session_models import EndUserSession


@pytest.fixture(scope="module")
def shared(django_db_setup: None, django_db_blocker: Any) -> tuple[TestTenant, User]:
    """A tenant whose policy changes, and one user."""
    with django_db_blocker.unblock():
        made = build_tenant("policy")
        return made, made.register()


def change(operator: Api, tenant: TestTenant, **settings: Any) -> Any:
    path = f"/uflow/admin/tenants/{tenant.id}/settings"
    return Api(token=operator.token).patch(path, {"settings": settings})


def status_with(token: str) -> int:
    return int(Api(token=token).get("/authmgr/profile").status_code)


def nothing_works(responses: list[Any], login: dict[str, Any]) -> bool:
    """Whether neither the session's tokens nor those that a refresh returned are accepted."""
    pairs = [login, *(response.json() for response in responses if response.status_code == 200)]
    return all(
        status_with(pair["access_token"]) == 401 and refresh(pair["refresh_token"]).status_code == 400 for pair in pairs
    )


@pytest.mark.timeout(600)
def test_refresh_while_factors_become_required(shared: tuple[TestTenant, User], operator: Api) -> None:
    tenant, person = shared
    for _ in range(ROUNDS):
        login = tenant.sign_in(person)
        calls = [partial(refresh, login["refresh_token"])] * 2
        changed, *responses = run_concurrently([partial(change, operator, tenant, mfa_policy="required"), *calls])
        assert changed.status_code == 200, changed.content
        assert {response.status_code for response in responses} <= {200, 400}
        assert nothing_works(responses, login)
        assert change(operator, tenant, mfa_policy="optional").status_code == 200


@pytest.mark.timeout(600)
def test_refresh_while_sessions_are_shortened(shared: tuple[TestTenant, User], operator: Api) -> None:
    tenant, person = shared
    for _ in range(ROUNDS):
        login = tenant.sign_in(person)
        with in_tenant(tenant.id):
            # Two hours old; the limit becomes one hour.
            old = EndUserSession.objects.filter(user_id=person.id)
            old.update(created_at=F("created_at") - timedelta(hours=2))
        calls = [partial(refresh, login["refresh_token"])] * 2
        changed, *responses = run_concurrently([partial(change, operator, tenant, session_seconds=3600), *calls])
        assert changed.status_code == 200, changed.content
        assert {response.status_code for response in responses} <= {200, 400}
        assert nothing_works(responses, login)
        assert change(operator, tenant, session_seconds=None).status_code == 200
