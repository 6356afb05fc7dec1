"""Sessions end when they were not used for their idle limit, and at their absolute limit, by the policy in force."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import jwt
import pytest
from django.db.models import F

from tenants.entering.context import in_tenant
from tests.userflow.sessions.test_refresh import refresh
from tests.world import Api, TestTenant, sign_in_admin
from userflow.accounts.session_models import AdminSession, EndUserSession

VALIDATE = "/authmgr/validate"


def age(pair: dict[str, Any], tenant: TestTenant | None = None, *, opened: int = 0, used: int = 0) -> None:
    """Let the session of these tokens be opened and last used so many seconds earlier."""
    sid = UUID(jwt.decode(pair["access_token"], options={"verify_signature": False})["sid"])
    earlier = {
        "created_at": F("created_at") - timedelta(seconds=opened),
        "last_used_at": F("last_used_at") - timedelta(seconds=used),
    }
    if tenant is None:
        AdminSession.objects.filter(pk=sid).update(**earlier)
        return
    with in_tenant(tenant.id):
        EndUserSession.objects.filter(pk=sid).update(**earlier)


def is_over(pair: dict[str, Any]) -> bool:
    used = Api(token=pair["access_token"]).get(VALIDATE).status_code
    refreshed = refresh(pair["refresh_token"]).status_code
    assert (used, refreshed) in {(200, 200), (401, 400)}
    return bool(used == 401)


@pytest.mark.parametrize(("idle", "absolute"), [(3600, 12 * 3600)])
def test_operator_session_ends_at_its_limits(operator_name: str, idle: int, absolute: int) -> None:
    for seconds, over in (({"used": idle - 60}, False), ({"used": idle + 60}, True)):
        pair = sign_in_admin(operator_name)
        age(pair, **seconds)
        assert is_over(pair) is over, seconds
    for seconds, over in (({"opened": absolute - 60}, False), ({"opened": absolute + 60}, True)):
        pair = sign_in_admin(operator_name)
        age(pair, **seconds)
        assert is_over(pair) is over, seconds


@pytest.mark.parametrize(("limit", "seconds"), [("used", 8 * 3600), ("opened", 24 * 3600)])
def test_tenant_admin_session_ends_at_its_limits(tenant: TestTenant, limit: str, seconds: int) -> None:
    before, after = sign_in_admin(tenant.admin.username), sign_in_admin(tenant.admin.username)
    age(before, **{limit: seconds - 60})
    age(after, **{limit: seconds + 60})
    assert (is_over(before), is_over(after)) == (False, True)


@pytest.mark.parametrize(("limit", "seconds"), [("used", 14 * 86400), ("opened", 90 * 86400)])
def test_end_user_session_ends_at_its_limits(tenant: TestTenant, limit: str, seconds: int) -> None:
    person = tenant.register()
    before, after = tenant.sign_in(person), tenant.sign_in(person)
    age(before, tenant, **{limit: seconds - 60})
    age(after, tenant, **{limit: seconds + 60})
    assert (is_over(before), is_over(after)) == (False, True)


def test_refresh_extends_the_idle_limit_only(tenant: TestTenant) -> None:
    pair = tenant.sign_in(tenant.register())
    age(pair, tenant, opened=90 * 86400 - 600)
    again = refresh(pair["refresh_token"]).json()
    # The access token does not outlive the session.
    assert 0 < again["expires_in"] <= 600
    age(again, tenant, opened=700)
    assert is_over(again)


def test_shorter_tenant_limits_apply_to_open_sessions(new_tenant: Any, operator: Api) -> None:
    own = new_tenant()
    person, admin = own.sign_in(own.register()), sign_in_admin(own.admin.username)
    age(person, own, opened=7200, used=7200)
    age(admin, opened=7200, used=600)
    shorter = {"refresh_token_seconds": 3600, "admin_session_seconds": 3600}
    assert operator.patch(f"/uflow/admin/tenants/{own.id}", {"settings": shorter}).status_code == 200
    assert is_over(person)
    assert is_over(admin)


def test_tenant_limits_do_not_lengthen_sessions(new_tenant: Any, operator: Api) -> None:
    own = new_tenant()
    longer = {"refresh_token_seconds": 30 * 86400, "session_seconds": 300 * 86400}
    assert operator.patch(f"/uflow/admin/tenants/{own.id}", {"settings": longer}).status_code == 200
    pair = own.sign_in(own.register())
    age(pair, own, used=14 * 86400 + 60)
    assert is_over(pair)


def test_session_list_shows_level_and_last_use(tenant: TestTenant) -> None:
    person = tenant.register()
    pair = tenant.sign_in(person)
    refresh(pair["refresh_token"])
    (session,) = Api(token=pair["access_token"]).get("/authmgr/sessions").json()["sessions"]
    assert (session["amr"], session["acr"]) == (["pwd"], "aal1")
    assert session["last_used_at"] > session["created_at"]
