"""A session that ends while one of its calls waits changes nothing that would outlast it.

A session was stolen; its owner resets the password or ends the session, which locks the user's row.
"""

import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any
from uuid import uuid4

import pyotp
import pytest
from django.db import connections
from django.utils.timezone import now

from mfa.sms.models import Phone
from tenants.entering.context import in_tenant
from tests.mfa.people import TestUser, code_to, new_user
from tests.mfa.stepup.members import Member, member
from tests.userflow.mailbox import mails_to
from tests.world import PASSWORD, Api, TestTenant
from userflow.accounts.realms import ADMINS, END_USERS, Realm

RESET, THIEFS = "another horse 8 battery", "stolen horse 7 battery"
WAITS = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND transactionid = pg_current_xact_id()::xid)"


def apart(call: Callable[[], Any]) -> Any:
    try:
        return call()
    finally:
        connections.close_all()


def ended_while(realm: Realm, user_id: Any, call: Callable[[], Any]) -> Any:
    """The answer to a call that was let in and waits for the user's row while all of the user's sessions end."""
    sessions = realm.sessions._default_manager.filter(user_id=user_id, ended_at=None)
    return answered_while(realm, user_id, call, lambda: sessions.update(ended_at=now()))


def answered_while(realm: Realm, user_id: Any, call: Callable[[], Any], meanwhile: Callable[[], Any]) -> Any:
    """The answer to a call that waits for the user's row while something is done."""
    with ThreadPoolExecutor(1) as pool:
        with realm.atomic(), connections[realm.alias].cursor() as cursor:
            realm.users._default_manager.select_for_update().get(pk=user_id)
            response = pool.submit(apart, call)
            until, waits = time.monotonic() + 60, False
            while not waits and not response.done() and time.monotonic() < until:
                cursor.execute(WAITS)
                (waits,) = cursor.fetchone()
                time.sleep(0.01)
            assert waits
            meanwhile()
        return response.result()


def new_address(thief: Api, person: TestUser) -> Callable[[], Any]:
    body = {"email": f"thief-{secrets.token_hex(5)}@example.com", **person.proof()}
    return lambda: thief.put("/authmgr/profile", body)


def an_authenticator(thief: Api, person: TestUser) -> Callable[[], Any]:
    secret = thief.post("/webauthn/totp/beginSetup", person.name).json()["secret"]
    body = {**person.name, **person.proof(), "secret": secret, "code": pyotp.TOTP(secret).now()}
    return lambda: thief.post("/webauthn/totp/confirmSetup", body)


@pytest.mark.parametrize("change", [new_address, an_authenticator])
def test_ended_session_changes_no_address_or_factor(
    tenant: TestTenant, change: Callable[[Api, TestUser], Callable[[], Any]]
) -> None:
    person = new_user(tenant)
    thief = Api(token=person.token())
    call = change(thief, person)
    with in_tenant(tenant.id):
        response = ended_while(END_USERS, person.id, call)
    assert response.status_code == 401
    row = person.row()
    assert (row.email, row.mfa_methods) == (person.email, [])


def test_ended_session_removes_no_factor(tenant: TestTenant) -> None:
    person = new_user(tenant)
    token = person.token()
    owner = Api(token=person.enrol_totp(token=token).raised(token))
    (factor,) = owner.get("/webauthn/factors").json()["factors"]
    with in_tenant(tenant.id):
        remove = partial(owner.delete, f"/webauthn/factors/{factor['id']}", {"backup_code": person.backup_codes[-1]})
        response = ended_while(END_USERS, person.id, remove)
    assert response.status_code == 401
    assert "totp" in person.row().mfa_methods


def test_code_of_removed_phone_is_rejected(tenant: TestTenant) -> None:
    person = new_user(tenant).enrol_phone()
    assert person.api.post("/webauthn/sms/requestCode", person.named_with_client).status_code == 200
    body = {**person.named_with_client, "code": code_to(person.phone)}
    with in_tenant(tenant.id):
        phones = Phone.objects.filter(user_id=person.id)
        verify = partial(person.api.post, "/webauthn/sms/verify", body)
        response = answered_while(END_USERS, person.id, verify, phones.delete)
    assert response.status_code == 400


def test_sms_code_replaced_after_comparison_is_rejected(tenant: TestTenant) -> None:
    person = new_user(tenant).enrol_phone()
    request = partial(person.api.post, "/webauthn/sms/requestCode", person.named_with_client)
    assert request().status_code == 200
    old = {**person.named_with_client, "code": code_to(person.phone)}
    person.minutes_pass(2)
    sent: list[int] = []
    with in_tenant(tenant.id):
        # The old code was right when it was compared; the new one is stored before the old one is used.
        verify = partial(person.api.post, "/webauthn/sms/verify", old)
        response = answered_while(END_USERS, person.id, verify, lambda: sent.append(request().status_code))
    assert (sent, response.status_code) == ([200], 400)
    new = {**old, "code": code_to(person.phone)}
    assert person.api.post("/webauthn/sms/verify", new).status_code == 200


def test_ended_session_changes_no_admin_address(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    body = {"email": f"thief-{secrets.token_hex(5)}@example.com", "current_password": PASSWORD}
    response = ended_while(ADMINS, own.admin.id, lambda: own.api.put("/authmgr/profile", body))
    assert response.status_code == 401
    assert ADMINS.users._default_manager.get(pk=own.admin.id).email == own.admin.email


def test_password_change_does_not_undo_reset(tenant: TestTenant) -> None:
    person = new_user(tenant)
    thief = Api(token=person.token())
    Api().post("/uflow/auth/enduser/password/forgot", {"email": person.email, "tenant_id": str(tenant.id)})
    token = mails_to(person.email, "new password")[-1].body.partition("token=")[2].split()[0]
    start = Barrier(2)

    def change() -> Any:
        start.wait()
        return thief.post("/authmgr/profile/password", {"current_password": PASSWORD, "new_password": THIEFS})

    with ThreadPoolExecutor(1) as pool:
        changed = pool.submit(apart, change)
        start.wait()
        reset = Api().post("/uflow/auth/enduser/password/reset", {"token": token, "password": RESET})
    # Whichever was first: of the two one has its way, and the other is told.
    won, lost = sorted([changed.result().status_code, reset.status_code])
    assert (won, lost in (400, 401)) == (200, True)
    body = {"client_id": str(tenant.client_id), "email": person.email}
    holds = RESET if reset.status_code == 200 else THIEFS
    assert Api().post("/uflow/auth/enduser/login", {**body, "password": holds}).status_code == 200


@pytest.mark.parametrize("realm", [END_USERS, ADMINS], ids=lambda realm: realm.name)
def test_password_step_up_that_meets_a_first_factor_raises_nothing(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant)
    before = user.session()
    # The password was right when it was compared; the factor is enrolled before the session is raised.
    call = partial(user.api.post, "/authmgr/step-up", {"password": PASSWORD})
    with user.entered():
        enroll = partial(realm.users._default_manager.filter(pk=user.id).update, mfa_methods=["totp"])
        response = answered_while(realm, user.id, call, enroll)
    assert (response.status_code, response.json()["code"]) == (400, "factor_required")
    assert user.session().auth_time == before.auth_time
    with user.entered():
        realm.users._default_manager.filter(pk=user.id).update(mfa_methods=[])
    assert user.api.post("/authmgr/step-up", {"password": PASSWORD}).status_code == 200


@pytest.mark.parametrize("realm", [END_USERS, ADMINS], ids=lambda realm: realm.name)
def test_sign_in_that_meets_sign_out_everywhere_is_ended(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant)
    if realm is ADMINS:
        sign_in = partial(Api().post, "/uflow/admin/auth/login", {"username": user.username, "password": PASSWORD})
    else:
        body = {"client_id": str(tenant.client_id), "email": user.email, "password": PASSWORD}
        sign_in = partial(Api().post, "/uflow/auth/enduser/login", body)
    everywhere = partial(user.api.post, "/authmgr/logout", {"all": True})
    opened: list[Any] = []
    # The sign-in is inside its transaction when the other call comes, which waits for the user's row and then sees it.
    with user.entered():
        response = answered_while(realm, user.id, everywhere, lambda: opened.append(open_session_of(realm, user)))
    assert response.status_code == 200
    with user.entered():
        assert not realm.sessions._default_manager.filter(pk=opened[0], ended_at=None).exists()
    assert sign_in().status_code == 200


def open_session_of(realm: Realm, user: Member) -> Any:
    """Store a session of the user in the open transaction, as a sign-in does under the lock of the user's row."""
    row = user.session()
    row.pk, row.created_at = uuid4(), now()
    row.save(force_insert=True)
    return row.pk
