"""Invitations of admin users and end users, from the mail to the first sign-in."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connections
from django.utils.timezone import now

from tenants.entering.context import in_tenant
from tests.userflow.mailbox import mails_to, token_in
from tests.userflow.sessions.clients import basic, form
from tests.userflow.user_index.reading import indexed
from tests.world import PASSWORD, Api, TestTenant, capture_statements, sign_in_admin
from userflow.invitations.models import AdminInvitation, EndUserInvitation

INVITATIONS = "/uflow/admin/invitations"
ACCEPT = "/uflow/invitations/accept"
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"
KINDS = ["admin", "end_user"]


def new_address() -> str:
    return f"guest-{secrets.token_hex(5)}@example.com"


def invite(tenant: TestTenant, kind: str, email: str | None = None, **members: Any) -> dict[str, Any]:
    response = tenant.api.post(INVITATIONS, {"email": email or new_address(), "kind": kind, **members})
    assert response.status_code == 201, response.content
    return dict(response.json())


def token_of(invitation: dict[str, Any]) -> str:
    return token_in(mails_to(invitation["email"], "invited")[-1])


def accept(token: str, **members: Any) -> Any:
    return Api().post(ACCEPT, {"token": token, "password": PASSWORD, **members})


def weak(tenant: TestTenant, *roles: str) -> Api:
    """Return an admin of the tenant with these roles only."""
    name = f"weak-{secrets.token_hex(4)}"
    body = {"username": name, "email": f"{name}@example.com", "password": PASSWORD, "first_name": "W", "last_name": "K"}
    assert tenant.api.post("/uflow/admin/users", {**body, "roles": list(roles)}).status_code == 201
    return Api(token=sign_in_admin(name)["access_token"])


def age(tenant: TestTenant, invitation: dict[str, Any], by: timedelta) -> None:
    """Let time pass for one invitation."""
    with in_tenant(tenant.id):
        model = AdminInvitation if invitation["kind"] == "admin" else EndUserInvitation
        model.objects.filter(pk=invitation["id"]).update(expires_at=now() + timedelta(days=7) - by)


def test_invited_admin_signs_in_with_invited_roles(tenant: TestTenant) -> None:
    invitation = invite(tenant, "admin", roles=["auditor"])
    assert (invitation["status"], invitation["roles"], invitation["user_id"]) == ("pending", ["auditor"], None)
    done = accept(token_of(invitation), username=f"u{secrets.token_hex(4)}", name="Grace Brewster Hopper")
    assert done.status_code == 201
    assert done.headers["X-Enrollment-Ticket"]
    assert done.headers["Cache-Control"] == "no-store"
    assert (done.json()["tenant_id"], done.json()["kind"]) == (str(tenant.id), "admin")
    me = Api(token=sign_in_admin(done.json()["username"])["access_token"]).get("/uflow/admin/users/me").json()
    assert (me["roles"], me["first_name"], me["last_name"]) == (["auditor"], "Grace", "Brewster Hopper")


def test_invited_end_user_signs_in_with_invited_roles(tenant: TestTenant) -> None:
    role = tenant.api.post("/authmgr/roles", {"name": f"r{secrets.token_hex(4)}", "permissions": ["tea:pour"]}).json()
    invitation = invite(tenant, "end_user", roles=[role["name"]])
    assert (invitation["client_id"], invitation["roles"]) == (str(tenant.client_id), [role["name"]])
    done = accept(token_of(invitation), name="Ada")
    assert (done.status_code, done.json()["email"], done.json()["client_id"]) == (
        201,
        invitation["email"],
        str(tenant.client_id),
    )
    assert done.headers["X-Enrollment-Ticket"]
    assert [str(user_id) for user_id in indexed(tenant, invitation["email"])] == [done.json()["user_id"]]
    login = {"client_id": str(tenant.client_id), "email": invitation["email"], "password": PASSWORD}
    token = Api().post("/uflow/auth/enduser/login", login).json()["access_token"]
    held = Api(token=token).get("/exsvc/debug/auth").json()
    assert (set(held["roles"]) >= {"user", role["name"]}, "tea:pour" in held["permissions"]) == (True, True)


def test_accept_rejects_an_inactive_client(tenant: TestTenant) -> None:
    body = {"name": f"app-{secrets.token_hex(4)}", "type": "public"}
    client = tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", body).json()["id"]
    token = token_of(invite(tenant, "end_user", client_id=client))
    path = f"/clientms/tenants/{tenant.id}/clients/{client}"
    for verb, expected in (("deactivate", 400), ("activate", 201)):
        assert tenant.api.patch(f"{path}/{verb}").status_code == 200
        assert accept(token).status_code == expected


@pytest.mark.parametrize("kind", KINDS)
def test_accept_opens_enrollment_window(tenant: TestTenant, settings: Any, kind: str) -> None:
    settings.EMBEDDED = True  # elsewhere admin users have no windows
    invitation = invite(tenant, kind)
    guest = Api()
    assert guest.post(ACCEPT, {"token": token_of(invitation), "password": PASSWORD}).status_code == 201
    path, body = {
        "admin": ("/webauthn/admin/totp/beginSetup", {"email": invitation["email"]}),
        "end_user": ("/webauthn/totp/beginSetup", {"email": invitation["email"], "tenant_id": str(tenant.id)}),
    }[kind]
    assert Api().post(path, body).status_code == 401
    assert guest.post(path, body).status_code == 200


@pytest.mark.parametrize("kind", KINDS)
def test_invitation_token_is_mailed_and_stored_hashed(tenant: TestTenant, kind: str) -> None:
    invitation = invite(tenant, kind)
    token = token_of(invitation)
    listed = tenant.api.get(INVITATIONS, {"limit": "100"})
    assert token.partition(".")[2] not in str(invitation) + listed.content.decode()
    with in_tenant(tenant.id):
        model = AdminInvitation if kind == "admin" else EndUserInvitation
        row = model.objects.filter(pk=invitation["id"]).values().get()
    assert token.partition(".")[2] not in repr(row)


@pytest.mark.parametrize("kind", KINDS)
def test_one_of_parallel_acceptances_wins(tenant: TestTenant, kind: str) -> None:
    invitation = invite(tenant, kind)
    token = token_of(invitation)

    def attempt(_: int) -> int:
        try:
            return int(accept(token).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(20) as pool:
        responses = sorted(pool.map(attempt, range(20)))
    assert responses[0] == 201
    assert set(responses[1:]) <= {400, 409, 503}


@pytest.mark.parametrize("kind", KINDS)
def test_invitation_token_works_once_within_seven_days(tenant: TestTenant, kind: str) -> None:
    used, old, fresh, cancelled = (invite(tenant, kind) for _ in range(4))
    assert accept(token_of(used)).status_code == 201
    age(tenant, old, timedelta(days=7, seconds=1))
    age(tenant, fresh, timedelta(days=7, minutes=-10))
    assert tenant.api.delete(f"{INVITATIONS}/{cancelled['id']}").json()["status"] == "cancelled"
    responses = [accept(token_of(invitation)) for invitation in (used, old, cancelled)]
    assert [response.status_code for response in responses] == [400, 400, 400]
    assert len({response.json()["message"] for response in responses}) == 1
    assert accept(token_of(fresh)).status_code == 201


@pytest.mark.parametrize("kind", KINDS)
def test_accept_rejects_weak_password_and_keeps_token(tenant: TestTenant, kind: str) -> None:
    token = token_of(invite(tenant, kind))
    rejected = accept(token, password="password1")
    assert (rejected.status_code, list(rejected.json()["details"])) == (400, ["password"])
    assert accept(token).status_code == 201


@pytest.mark.parametrize("kind", KINDS)
def test_resend_voids_previous_token(tenant: TestTenant, kind: str) -> None:
    invitation = invite(tenant, kind)
    first = token_of(invitation)
    age(tenant, invitation, timedelta(days=30))
    again = tenant.api.post(f"{INVITATIONS}/{invitation['id']}/resend")
    assert (again.status_code, again.json()["status"], again.json()["id"]) == (200, "pending", invitation["id"])
    second = token_of(invitation)
    assert (accept(first).status_code, accept(second).status_code) == (400, 201)
    assert tenant.api.post(f"{INVITATIONS}/{invitation['id']}/resend").status_code == 409
    assert tenant.api.delete(f"{INVITATIONS}/{invitation['id']}").status_code == 409


def test_invite_existing_user_is_409(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person = tenant.register()
    tenant.sign_in(person)
    assert tenant.api.post(INVITATIONS, {"email": person.email.upper(), "kind": "end_user"}).status_code == 409
    tenant.api.put(f"/uflow/user/enduser/{tenant.id}/{person.id}/status", {"active": False})
    assert tenant.api.post(INVITATIONS, {"email": person.email, "kind": "end_user"}).status_code == 409
    assert tenant.api.post(INVITATIONS, {"email": tenant.admin.email, "kind": "admin"}).status_code == 409
    # End users of different tenants are independent.
    assert other_tenant.api.post(INVITATIONS, {"email": person.email, "kind": "end_user"}).status_code == 201


def test_other_tenants_admin_invitations_end_with_acceptance(tenant: TestTenant, other_tenant: TestTenant) -> None:
    email = new_address()
    first = invite(tenant, "admin", email)
    # Two queued mails can be sent in either order.
    token_of_first = token_of(first)
    second = invite(other_tenant, "admin", email)
    assert accept(token_of_first).status_code == 201
    assert accept(token_of(second)).status_code == 400
    found = [api.get(INVITATIONS, {"limit": "100"}).json()["invitations"] for api in (tenant.api, other_tenant.api)]
    status = {row["id"]: row["status"] for rows in found for row in rows}
    assert (status[first["id"]], status[second["id"]]) == ("accepted", "cancelled")


@pytest.mark.parametrize("kind", KINDS)
def test_invite_rejects_a_second_open_invitation(tenant: TestTenant, other_tenant: TestTenant, kind: str) -> None:
    email = new_address()
    first = invite(tenant, kind, email)
    body = {"email": email.upper(), "kind": kind}
    again = tenant.api.post(INVITATIONS, body)
    assert (again.status_code, again.json()["details"]) == (409, {"invitation_id": first["id"]})
    assert "pending invitation" in again.json()["message"]
    assert len(mails_to(email, "invited")) == 1
    # Invitations of the other kind and of the other tenant are separate.
    other_kind = {"admin": "end_user", "end_user": "admin"}[kind]
    assert tenant.api.post(INVITATIONS, {**body, "kind": other_kind}).status_code == 201
    assert other_tenant.api.post(INVITATIONS, body).status_code == 201


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["cancelled", "expired"])
def test_invite_again_after_cancel_or_accept(tenant: TestTenant, kind: str, end: str) -> None:
    first = invite(tenant, kind)
    token = token_of(first)
    if end == "cancelled":
        tenant.api.delete(f"{INVITATIONS}/{first['id']}")
    else:
        age(tenant, first, timedelta(days=8))
    second = invite(tenant, kind, first["email"])
    assert tenant.api.post(f"{INVITATIONS}/{first['id']}/resend").status_code == 409
    assert accept(token).status_code == 400
    assert accept(token_of(second)).status_code == 201


def test_operators_have_one_open_invitation_per_address(tenant: TestTenant, operator: Api) -> None:
    body = {"email": new_address(), "kind": "admin"}
    made = operator.post(INVITATIONS, body)
    assert made.status_code == 201
    again = operator.post(INVITATIONS, body)
    assert (again.status_code, again.json()["details"]["invitation_id"]) == (409, made.json()["id"])
    # A tenant does not see the platform's invitations.
    assert tenant.api.post(INVITATIONS, body).status_code == 201
    assert operator.delete(f"{INVITATIONS}/{made.json()['id']}").status_code == 200
    assert operator.post(INVITATIONS, body).status_code == 201


@pytest.mark.parametrize("kind", KINDS)
def test_concurrent_invitations_store_one(tenant: TestTenant, kind: str) -> None:
    body = {"email": new_address(), "kind": kind}

    def attempt(_: int) -> int:
        try:
            return int(tenant.api.post(INVITATIONS, body).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(20) as pool:
        responses = sorted(pool.map(attempt, range(20)))
    assert responses == [201] + [409] * 19
    assert len(mails_to(body["email"], "invited")) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_concurrent_resend_and_invite_leave_one_open(tenant: TestTenant, kind: str) -> None:
    for _ in range(5):
        first = invite(tenant, kind)
        age(tenant, first, timedelta(days=8))

        def act(path: str, body: Any = None) -> int:
            try:
                return int(tenant.api.post(path, body).status_code)
            finally:
                connections.close_all()

        with ThreadPoolExecutor(2) as pool:
            resent = pool.submit(act, f"{INVITATIONS}/{first['id']}/resend")
            made = pool.submit(act, INVITATIONS, {"email": first["email"], "kind": kind})
            responses = (resent.result(), made.result())
        assert responses in ((200, 409), (409, 201))


def test_accept_after_registration_is_409(tenant: TestTenant) -> None:
    invitation = invite(tenant, "end_user")
    tenant.sign_in(tenant.register(invitation["email"]))
    assert accept(token_of(invitation)).status_code == 409
    assert tenant.api.post(f"{INVITATIONS}/{invitation['id']}/resend").status_code == 409


def test_invite_beyond_own_permissions_is_rejected(tenant: TestTenant) -> None:
    manager, reader = weak(tenant, "user-manager"), weak(tenant, "auditor")
    strong = tenant.api.post("/authmgr/roles", {"name": f"s{secrets.token_hex(4)}", "permissions": ["services:delete"]})
    assert reader.post(INVITATIONS, {"email": new_address(), "kind": "end_user"}).status_code == 403
    assert reader.get(INVITATIONS).status_code == 200
    plain = {"email": new_address(), "kind": "end_user"}
    assert manager.post(INVITATIONS, {**plain, "roles": [strong.json()["name"]]}).status_code == 403
    assert manager.post(INVITATIONS, {"email": new_address(), "kind": "admin"}).status_code == 403
    assert (
        manager.post(INVITATIONS, {"email": new_address(), "kind": "admin", "roles": ["user-manager"]}).status_code
        == 403
    )
    assert manager.post(INVITATIONS, plain).status_code == 201
    assert (
        tenant.api.post(INVITATIONS, {"email": new_address(), "kind": "admin", "roles": ["operator"]}).status_code
        == 400
    )


def test_an_operator_invites_operators_and_for_tenants(tenant: TestTenant, operator: Api) -> None:
    email = new_address()
    made = operator.post(INVITATIONS, {"email": email, "kind": "admin"}).json()
    assert (made["tenant_id"], made["roles"]) == (None, ["operator"])
    done = accept(token_in(mails_to(email)[-1]))
    assert (done.status_code, done.json()["tenant_id"]) == (201, None)
    assert operator.post(INVITATIONS, {"email": new_address(), "kind": "end_user"}).status_code == 400
    for_tenant = {"email": new_address(), "kind": "end_user", "tenant_id": str(tenant.id)}
    assert operator.post(INVITATIONS, for_tenant).status_code == 201
    assert operator.post(INVITATIONS, {**for_tenant, "tenant_id": UNKNOWN_ID}).status_code == 404
    assert made["id"] in {row["id"] for row in operator.get(INVITATIONS).json()["invitations"]}
    assert operator.delete(f"{INVITATIONS}/{made['id']}").status_code == 409


@pytest.mark.parametrize("kind", KINDS)
def test_other_tenants_invitation_is_404(tenant: TestTenant, other_tenant: TestTenant, kind: str) -> None:
    invitation = invite(tenant, kind)
    for method, suffix in (("post", "/resend"), ("delete", "")):
        foreign = other_tenant.api.call(method, f"{INVITATIONS}/{invitation['id']}{suffix}")
        unknown = other_tenant.api.call(method, f"{INVITATIONS}/{UNKNOWN_ID}{suffix}")
        assert foreign.status_code == unknown.status_code == 404
        assert foreign.json() == unknown.json()
    mine = {row["id"] for row in other_tenant.api.get(INVITATIONS, {"limit": "100"}).json()["invitations"]}
    assert invitation["id"] not in mine
    assert (
        other_tenant.api.post(
            INVITATIONS, {"email": new_address(), "kind": kind, "tenant_id": str(tenant.id)}
        ).status_code
        == 403
    )
    assert accept(token_of(invitation)).status_code == 201


def test_token_of_another_database_is_rejected(tenant: TestTenant, other_tenant: TestTenant) -> None:
    token = token_of(invite(tenant, "end_user"))
    secret = token.partition(".")[2]
    for place in (other_tenant.id.hex, "p", UUID(UNKNOWN_ID).hex):
        assert accept(f"{place}.{secret}").status_code == 400
    assert accept(token).status_code == 201


@pytest.mark.parametrize(
    "token", ["", "x", "p.", "." * 40, f"p.{'A' * 43}", f"{'0' * 32}.{'A' * 43}", "p.\u00e4", 5, None]
)
def test_malformed_token_is_rejected(tenant: TestTenant, token: Any) -> None:
    assert Api().post(ACCEPT, {"token": token, "password": PASSWORD}).status_code == 400


def test_list_merges_both_kinds_and_filters_by_status(new_tenant: Any) -> None:
    tenant = new_tenant()
    made = [invite(tenant, kind)["id"] for kind in ("admin", "end_user", "end_user", "admin", "end_user")][::-1]
    pages = [tenant.api.get(INVITATIONS, {"limit": "2", "page": str(page)}).json() for page in (1, 2, 3, 4)]
    assert [row["id"] for page in pages for row in page["invitations"]] == made
    assert {(page["total"], page["total_pages"]) for page in pages} == {(5, 3)}
    tenant.api.delete(f"{INVITATIONS}/{made[0]}")
    by_status = {
        status: [row["id"] for row in tenant.api.get(INVITATIONS, {"status": status}).json()["invitations"]]
        for status in ("pending", "cancelled", "accepted", "expired")
    }
    assert by_status == {"pending": made[1:], "cancelled": made[:1], "accepted": [], "expired": []}
    admins = tenant.api.get(INVITATIONS, {"kind": "admin"}).json()
    assert [row["id"] for row in admins["invitations"]] == [made[1], made[4]]
    assert tenant.api.get(INVITATIONS, {"status": "lost"}).status_code == 400


def test_page_has_constant_statement_count(new_tenant: Any) -> None:
    tenant = new_tenant()
    invite(tenant, "admin")
    invite(tenant, "end_user")
    with capture_statements() as few:
        tenant.api.get(INVITATIONS)
    for kind in KINDS * 4:
        invite(tenant, kind)
    with capture_statements() as many:
        tenant.api.get(INVITATIONS)
    # The caller's state; for each kind the total, the keys and the rows.
    assert [len(few.default), len(few.tenant)] == [len(many.default), len(many.tenant)] == [4, 3]


def test_accept_skips_deleted_roles(tenant: TestTenant) -> None:
    role = tenant.api.post("/authmgr/roles", {"name": f"gone{secrets.token_hex(4)}", "permissions": ["x:y"]}).json()
    invitation = invite(tenant, "end_user", roles=[role["name"]])
    tenant.api.delete(f"/authmgr/roles/{role['id']}")
    tenant.api.post("/authmgr/roles", {"name": role["name"], "permissions": ["z:z"]})
    assert accept(token_of(invitation)).status_code == 201
    login = {"client_id": str(tenant.client_id), "email": invitation["email"], "password": PASSWORD}
    token = Api().post("/uflow/auth/enduser/login", login).json()["access_token"]
    assert Api(token=token).get("/exsvc/debug/auth").json()["roles"] == ["user"]


@pytest.mark.parametrize(
    ("body", "member"),
    [
        ({"kind": "admin"}, "email"),
        ({"email": "x", "kind": "admin"}, "email"),
        ({"email": "a@example.com"}, "kind"),
        ({"email": "a@example.com", "kind": "client"}, "kind"),
        ({"email": "a@example.com", "kind": "end_user", "roles": "x"}, "roles"),
        ({"email": "a@example.com", "kind": "end_user", "roles": ["no such"]}, "roles"),
        ({"email": "a@example.com", "kind": "admin", "roles": []}, "roles"),
        ({"email": "a@example.com", "kind": "end_user", "client_id": "x"}, "client_id"),
    ],
)
def test_invalid_invitation_names_field(tenant: TestTenant, body: dict[str, Any], member: str) -> None:
    response = tenant.api.post(INVITATIONS, body)
    assert (response.status_code, list(response.json()["details"])) == (400, [member])


def test_another_tenants_client_is_404(tenant: TestTenant, other_tenant: TestTenant) -> None:
    body = {"email": new_address(), "kind": "end_user", "client_id": str(other_tenant.client_id)}
    assert tenant.api.post(INVITATIONS, body).status_code == 404


@pytest.mark.parametrize(("kind", "trail"), [("admin", "platform"), ("end_user", "tenant")])
def test_invitation_events_hold_no_token_or_address(tenant: TestTenant, kind: str, trail: str) -> None:
    invitation = invite(tenant, kind)
    first = token_of(invitation)
    tenant.api.post(f"{INVITATIONS}/{invitation['id']}/resend")
    token = token_of(invitation)
    user_id = accept(token).json()["user_id"]
    response = tenant.api.get("/uflow/admin/audit", {"target": invitation["id"], "trail": trail})
    events = response.json()["events"]
    assert [event["action"] for event in events] == ["invitation.accepted", "invitation.sent_again", "invitation.made"]
    assert events[0]["details"] == {"kind": kind, "user_id": user_id}
    assert [word for word in (invitation["email"], first, token) if word in response.content.decode()] == []


def test_accept_rejects_suspended_tenant_and_keeps_token(new_tenant: Any, operator: Api) -> None:
    tenant = new_tenant()
    tokens = [token_of(invite(tenant, kind)) for kind in KINDS]
    operator.patch(f"/uflow/admin/tenants/{tenant.id}", {"status": "suspended"})
    assert [accept(token).status_code for token in tokens] == [403, 403]
    operator.patch(f"/uflow/admin/tenants/{tenant.id}", {"status": "active"})
    assert [accept(token).status_code for token in tokens] == [201, 201]


@pytest.mark.parametrize(
    ("member", "names"),
    [("name", {"name": "x" * 200}), ("name", {"name": "y " + "x" * 200}), ("username", {})],
)
def test_accept_rejects_long_admin_name_and_keeps_token(tenant: TestTenant, member: str, names: dict[str, str]) -> None:
    long_address = f"{'a' * 60}@{'b' * 60}.{'c' * 60}.{secrets.token_hex(4)}.com"
    token = token_of(invite(tenant, "admin", email=long_address if member == "username" else None))
    own = {} if member == "username" else {"username": f"u{secrets.token_hex(4)}"}
    response = accept(token, **own, **names)
    assert (response.status_code, list(response.json()["details"])) == (400, [member])
    assert accept(token, username=f"u{secrets.token_hex(4)}", name="Grace Hopper").status_code == 201


def test_accept_rejects_roles_the_inviter_lost(new_tenant: Any) -> None:
    tenant: TestTenant = new_tenant()
    name = f"boss-{secrets.token_hex(4)}"
    body = {"username": name, "email": f"{name}@example.com", "password": PASSWORD, "first_name": "B", "last_name": "O"}
    boss = tenant.api.post("/uflow/admin/users", body).json()
    api = Api(token=sign_in_admin(name)["access_token"])
    invited = [api.post(INVITATIONS, {"email": new_address(), "kind": "admin"}).json() for _ in range(2)]
    assert accept(token_of(invited[0])).status_code == 201
    assert tenant.api.put(f"/uflow/admin/users/{boss['id']}", {"roles": ["auditor"]}).status_code == 200
    assert accept(token_of(invited[1])).status_code == accept("nonsense").status_code == 400


def test_accept_grants_no_permission_the_inviter_lost(new_tenant: Any) -> None:
    tenant: TestTenant = new_tenant()
    role = tenant.api.post("/authmgr/roles", {"name": "readers", "permissions": ["endusers:read"]}).json()
    name = f"boss-{secrets.token_hex(4)}"
    body = {"username": name, "email": f"{name}@example.com", "password": PASSWORD, "first_name": "B", "last_name": "O"}
    boss = tenant.api.post("/uflow/admin/users", body).json()
    api = Api(token=sign_in_admin(name)["access_token"])
    strong, plain = (
        api.post(INVITATIONS, {"email": new_address(), "kind": "end_user", "roles": roles}).json()
        for roles in ([role["name"]], [])
    )
    assert tenant.api.post("/uflow/admin/users/active", {"user_id": boss["id"], "active": False}).status_code == 200
    assert accept(token_of(strong)).status_code == 400
    assert accept(token_of(plain)).status_code == 201


def test_invite_is_limited_per_hour(new_tenant: Any, settings: Any) -> None:
    tenant: TestTenant = new_tenant()
    settings.LIMITS = {**settings.LIMITS, "invitation": (2, 3600)}
    responses = [tenant.api.post(INVITATIONS, {"email": new_address(), "kind": "end_user"}) for _ in range(3)]
    assert [response.status_code for response in responses] == [201, 201, 429]
    assert int(responses[2].headers["Retry-After"]) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_mail_limit_is_counted_per_tenant(
    tenant: TestTenant, other_tenant: TestTenant, settings: Any, kind: str
) -> None:
    settings.LIMITS = {**settings.LIMITS, "mail": (2, 3600)}
    email = new_address()
    noisy = invite(other_tenant, kind, email)
    for _ in range(3):
        assert other_tenant.api.post(f"{INVITATIONS}/{noisy['id']}/resend").status_code == 200
    assert len(mails_to(email, "invited")) == 2
    assert accept(token_of(invite(tenant, kind, email))).status_code == 201


@pytest.mark.parametrize("method", ["resend", "cancel"])
def test_admin_invitations_need_admins_write(tenant: TestTenant, method: str) -> None:
    invitation = invite(tenant, "admin")
    age(tenant, invitation, timedelta(days=8))
    path = f"{INVITATIONS}/{invitation['id']}"
    manager = weak(tenant, "user-manager")
    response = manager.post(f"{path}/resend") if method == "resend" else manager.delete(path)
    assert (response.status_code, len(mails_to(invitation["email"], "invited"))) == (403, 1)
    listed = tenant.api.get(INVITATIONS, {"status": "expired", "limit": "100"}).json()["invitations"]
    assert invitation["id"] in {row["id"] for row in listed}


def test_resend_rejects_roles_the_caller_cannot_grant(tenant: TestTenant) -> None:
    role = {"name": f"strong {secrets.token_hex(4)}", "permissions": ["services:credentials"]}
    assert tenant.api.post("/authmgr/roles", role).status_code == 201
    invitation = invite(tenant, "end_user", roles=[role["name"]])
    age(tenant, invitation, timedelta(days=8))
    path = f"{INVITATIONS}/{invitation['id']}"
    assert weak(tenant, "user-manager").post(f"{path}/resend").status_code == 403
    assert tenant.api.post(f"{path}/resend").status_code == 200


def test_erase_deletes_older_invitations(new_tenant: Any) -> None:
    tenant: TestTenant = new_tenant()
    tenant.register()
    role = tenant.api.post("/authmgr/roles", {"name": "pourers", "permissions": ["tea:pour"]}).json()
    invitation = invite(tenant, "end_user", roles=[role["name"]])
    person, other = tenant.register(invitation["email"]), invite(tenant, "end_user")
    body = {"tenant_id": str(tenant.id), "user_id": str(person.id)}
    response = tenant.api.post("/uflow/user/enduser/delete_all", body)
    assert (response.status_code, response.json()["deleted"]["invitations"]) == (200, 1)
    assert accept(token_of(invitation)).status_code == 400
    assert [row["id"] for row in tenant.api.get(INVITATIONS).json()["invitations"]] == [other["id"]]


def test_erase_deletes_accepted_invitation(new_tenant: Any) -> None:
    tenant: TestTenant = new_tenant()
    tenant.register()
    user_id = accept(token_of(invite(tenant, "end_user"))).json()["user_id"]
    assert tenant.api.put(f"/uflow/user/enduser/{tenant.id}/{user_id}", {"email": new_address()}).status_code == 200
    body = {"tenant_id": str(tenant.id), "user_id": user_id}
    assert tenant.api.post("/uflow/user/enduser/delete_all", body).json()["deleted"]["invitations"] == 1
    assert tenant.api.get(INVITATIONS).json()["invitations"] == []


def test_concurrent_erase_and_accept_leave_no_user(new_tenant: Any) -> None:
    tenant: TestTenant = new_tenant()
    tenant.register()
    for _ in range(4):
        invitation = invite(tenant, "end_user")
        person, token = tenant.register(invitation["email"]), token_of(invitation)
        tenant.sign_in(person)  # a registration that was never used would yield to the invitation
        body = {"tenant_id": str(tenant.id), "user_id": str(person.id)}

        def erase(body: dict[str, str] = body) -> int:
            return int(tenant.api.post("/uflow/user/enduser/delete_all", body).status_code)

        def come_back(token: str = token) -> int:
            return int(accept(token).status_code)

        def closing(act: Any) -> int:
            try:
                return int(act())
            finally:
                connections.close_all()

        with ThreadPoolExecutor(2) as pool:
            erased, accepted = pool.map(closing, (erase, come_back))
        assert (erased, accepted in (400, 409)) == (200, True)


@pytest.mark.parametrize("kind", KINDS)
def test_resend_makes_the_caller_the_inviter(tenant: TestTenant, kind: str) -> None:
    left = weak(tenant, "tenant-admin")
    invitation = left.post(INVITATIONS, {"email": new_address(), "kind": kind, **_strong(tenant, kind)}).json()
    body = {"user_id": invitation["invited_by"], "active": False}
    assert tenant.api.post("/uflow/admin/users/active", body).status_code == 200
    assert accept(token_of(invitation)).status_code == 400
    again = tenant.api.post(f"{INVITATIONS}/{invitation['id']}/resend").json()
    assert again["invited_by"] == str(tenant.admin.id)
    assert accept(token_of(invitation)).status_code == 201


def _strong(tenant: TestTenant, kind: str) -> dict[str, list[str]]:
    """Create roles with permissions of the platform."""
    if kind == "admin":
        return {"roles": ["auditor"]}
    role = {"name": f"readers {secrets.token_hex(4)}", "permissions": ["endusers:read"]}
    assert tenant.api.post("/authmgr/roles", role).status_code == 201
    return {"roles": [role["name"]]}


def test_invitation_gives_app_metadata_and_external_id(tenant: TestTenant) -> None:
    given = {"app_metadata": {"plan": "pro"}, "external_id": f"crm-{secrets.token_hex(5)}"}
    invitation = invite(tenant, "end_user", **given)
    assert {name: invitation[name] for name in given} == given
    forged = {"app_metadata": {"plan": "enterprise"}, "external_id": "other", "metadata": {"plan": "enterprise"}}
    done = accept(token_of(invitation), **forged)
    assert done.status_code == 201, done.content
    record = tenant.api.get(f"/uflow/user/enduser/{tenant.id}/{done.json()['user_id']}").json()
    assert {name: record[name] for name in (*given, "metadata")} == {**given, "metadata": {}}
    taken = tenant.api.post(INVITATIONS, {"email": new_address(), "kind": "end_user", **given})
    assert (taken.status_code, taken.json()["code"]) == (409, "external_id_taken")


def test_invitation_with_app_metadata_needs_endusers_write(tenant: TestTenant) -> None:
    client = {"name": "Inviter", "type": "confidential", "scopes": ["invitations:write"]}
    made = tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", client).json()
    path = f"/clientms/tenants/{tenant.id}/clients/{made['client_id']}"

    def inviter() -> Api:
        sent = form(grant_type="client_credentials")
        return Api(token=Api().post("/authmgr/token", **sent, headers=basic(made)).json()["access_token"])

    body = {"email": new_address(), "kind": "end_user"}
    for given in ({"app_metadata": {"plan": "pro"}}, {"external_id": secrets.token_hex(5)}):
        assert inviter().post(INVITATIONS, {**body, **given}).status_code == 403
    assert inviter().post(INVITATIONS, body).status_code == 201
    assert tenant.api.patch(path, {"scopes": ["invitations:write", "endusers:write"]}).status_code == 200
    invited = inviter().post(INVITATIONS, {**body, "email": new_address(), "app_metadata": {"plan": "pro"}})
    assert invited.status_code == 201, invited.content
    # What the inviter may no longer write is not written either.
    assert tenant.api.patch(path, {"scopes": ["invitations:write"]}).status_code == 200
    assert accept(token_of(invited.json())).status_code == 400
    assert inviter().post(f"{INVITATIONS}/{invited.json()['id']}/resend").status_code == 403
    assert tenant.api.post(f"{INVITATIONS}/{invited.json()['id']}/resend").status_code == 200
    assert accept(token_of(invited.json())).status_code == 201


def test_accepting_cannot_take_a_used_external_id(tenant: TestTenant) -> None:
    same = f"crm-{secrets.token_hex(5)}"
    invitation, user = invite(tenant, "end_user", external_id=same), tenant.register()
    path = f"/uflow/user/enduser/{tenant.id}/{user.id}"
    assert tenant.api.put(path, {"external_id": same}).status_code == 200
    assert accept(token_of(invitation)).status_code == 400
    assert tenant.api.post(f"{INVITATIONS}/{invitation['id']}/resend").status_code == 409
    assert tenant.api.put(path, {"external_id": None}).status_code == 200
    assert accept(token_of(invitation)).status_code == 201
