"""Where addresses are verified, a password and the proof beside it belong together: no registration displaces another."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils.timezone import now

from tenants.entering.context import in_tenant
from tests.copies import change_tenant
from tests.userflow.mailbox import code_in, mails_to, token_in
from tests.userflow.user_index.reading import indexed
from tests.world import Api, TestTenant, build_tenant
from userflow.accounts.models import EndUser
from userflow.credentials.models import PendingRegistration

REGISTER, LOGIN, VERIFY = "/uflow/user/clients/register", "/uflow/auth/enduser/login", "/uflow/user/email/verify"
RESEND, FORGOT = "/uflow/user/email/resend", "/uflow/auth/enduser/password/forgot"
PROOF, TAKEN, RESET = "verify your e-mail address", "already", "new password"
OWN, FOREIGN = "owner horse 6 battery", "attacker horse 7 battery"


@pytest.fixture(scope="module")
def strict(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """Return a tenant that requires verified addresses."""
    with django_db_blocker.unblock():
        tenant = build_tenant("pending")
        require_verification(tenant, "required")
        return tenant


def require_verification(tenant: TestTenant, value: str) -> None:
    change_tenant(tenant.id, settings={"email_verification": value})


def new_address() -> str:
    return f"pending-{secrets.token_hex(5)}@example.com"


def register(tenant: TestTenant, email: str, password: str, api: Api | None = None, **fields: Any) -> Any:
    body = {"tenant_id": str(tenant.id), "client_id": str(tenant.client_id), "email": email, "password": password}
    return (api or Api()).post(REGISTER, {**body, **fields})


def sign_in(tenant: TestTenant, email: str, password: str) -> Any:
    body = {"client_id": str(tenant.client_id), "email": email, "password": password}
    return Api().post(LOGIN, body)


def verify(**body: Any) -> Any:
    return Api().post(VERIFY, body)


def by_code(tenant: TestTenant, email: str, code: str, api: Api | None = None, **fields: Any) -> Any:
    body = {"tenant_id": str(tenant.id), "email": email, "code": code}
    return (api or Api()).post(VERIFY, {**body, **fields})


def proofs_to(email: str) -> list[Any]:
    return mails_to(email, PROOF)


def pending(tenant: TestTenant, email: str) -> int:
    with in_tenant(tenant.id):
        return PendingRegistration.objects.filter(email_key=email).count()


@pytest.mark.parametrize("by", ["link", "code"])
@pytest.mark.parametrize("attacker_comes", ["before", "after", "both"])
def test_owners_proof_verifies_the_owners_password(strict: TestTenant, by: str, attacker_comes: str) -> None:
    for _ in range(5):
        email = new_address()
        other_case = email.upper().replace("EXAMPLE.COM", "example.com")
        others_ids = []
        if attacker_comes in ("before", "both"):
            others_ids.append(register(strict, email, FOREIGN).json()["user_id"])
        before = len(proofs_to(email))
        own = register(strict, email, OWN)
        (sent,) = proofs_to(email)[before:]
        if attacker_comes in ("after", "both"):
            others_ids.append(register(strict, other_case, FOREIGN).json()["user_id"])
        mails = [*proofs_to(email), *proofs_to(other_case)]
        others = [token_in(mail) for mail in mails if mail is not sent]
        assert own.status_code == 201
        done = verify(token=token_in(sent)) if by == "link" else by_code(strict, email, code_in(sent))
        assert (done.status_code, done.json()["user_id"]) == (200, own.json()["user_id"])
        assert (sign_in(strict, email, OWN).status_code, sign_in(strict, email, FOREIGN).status_code) == (200, 401)
        assert [verify(token=token).status_code for token in others] == [400] * len(others_ids)
        assert indexed(strict, email) == [done_id(done)]
        assert pending(strict, email) == 0


def done_id(done: Any) -> Any:
    from uuid import UUID

    return UUID(done.json()["user_id"])


def test_registration_is_no_user_before_its_proof(strict: TestTenant) -> None:
    email = new_address()
    waiting = register(strict, email, OWN).json()["user_id"]
    path, query = f"/uflow/user/enduser/{strict.id}/{waiting}", {"tenant_id": str(strict.id), "email": email}
    assert strict.api.get(path).status_code == 404
    assert strict.api.get("/uflow/user/enduser/list", query).json()["users"] == []
    assert indexed(strict, email) == []
    assert verify(token=token_in(proofs_to(email)[-1])).status_code == 200
    assert strict.api.get(path).json()["email"] == email
    assert len(strict.api.get("/uflow/user/enduser/list", query).json()["users"]) == 1


def test_parallel_registrations_and_one_link(strict: TestTenant) -> None:
    email = new_address()
    passwords = [f"parallel horse {number} battery" for number in range(8)]

    def attempt(password: str) -> Any:
        try:
            return register(strict, email, password)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(attempt, passwords))
    assert [response.status_code for response in responses] == [201] * 8
    assert {sign_in(strict, email, password).status_code for password in passwords} == {403}
    verified = verify(token=token_in(proofs_to(email)[3])).json()["user_id"]
    right = [response.json()["user_id"] for response in responses].index(verified)
    assert sign_in(strict, email, passwords.pop(right)).status_code == 200
    assert {sign_in(strict, email, password).status_code for password in passwords[:4]} == {401}


def test_parallel_links_and_codes_of_two_registrations_make_one_user(strict: TestTenant) -> None:
    for _ in range(4):
        email = new_address()
        register(strict, email, OWN)
        register(strict, email, FOREIGN)
        named = {"tenant_id": str(strict.id), "email": email}
        bodies: list[dict[str, str]] = [{"token": token_in(sent)} for sent in proofs_to(email)]
        bodies += [{**named, "code": code_in(sent)} for sent in proofs_to(email)]

        def attempt(body: dict[str, str]) -> int:
            try:
                return int(verify(**body).status_code)
            finally:
                connections.close_all()

        with ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(attempt, bodies * 2))
        assert (statuses.count(200), set(statuses) <= {200, 400, 409}) == (1, True)
        with in_tenant(strict.id):
            assert EndUser.objects.filter(email_key=email).count() == 1
        signed_in = [sign_in(strict, email, password).status_code for password in (OWN, FOREIGN)]
        assert sorted(signed_in) == [200, 401]


def test_taken_address_gets_the_same_response_and_its_owner_a_mail(strict: TestTenant) -> None:
    taken, free = new_address(), new_address()
    register(strict, taken, OWN)
    assert verify(token=token_in(proofs_to(taken)[-1])).status_code == 200
    again, fresh = register(strict, taken, FOREIGN), register(strict, free, FOREIGN)
    shapes = [{**response.json(), "user_id": "", "email": ""} for response in (again, fresh)]
    assert (again.status_code, shapes[0]) == (fresh.status_code, shapes[1])
    assert again.headers.keys() == fresh.headers.keys()
    assert (len(proofs_to(taken)), len(mails_to(taken, TAKEN))) == (1, 1)
    # Neither does the password that was sent with it.
    assert sign_in(strict, taken, FOREIGN).content == sign_in(strict, free, FOREIGN).content
    assert sign_in(strict, taken, FOREIGN).status_code == 403
    assert sign_in(strict, taken, OWN).status_code == 200


def test_only_the_right_password_gets_the_verification_error(strict: TestTenant) -> None:
    email = new_address()
    register(strict, email, OWN)
    register(strict, email, FOREIGN)
    statuses = [sign_in(strict, email, password).status_code for password in (OWN, FOREIGN, "another horse 3 battery")]
    assert statuses == [403, 403, 401]


def test_where_verification_is_off_a_second_registration_is_409(new_tenant: Callable[[], TestTenant]) -> None:
    tenant, email = new_tenant(), new_address()
    attacker = register(tenant, email, FOREIGN)
    assert (attacker.status_code, register(tenant, email, OWN).status_code) == (201, 409)
    assert sign_in(tenant, email, FOREIGN).status_code == 200
    # The owner of the mailbox comes in by a reset.
    assert Api().post(FORGOT, {"tenant_id": str(tenant.id), "email": email}).status_code == 200
    token = mails_to(email, RESET)[-1].body.partition("#token=")[2].split()[0]
    body = {"token": token, "password": OWN}
    assert Api().post("/uflow/auth/enduser/password/reset", body).status_code == 200
    assert (sign_in(tenant, email, OWN).status_code, sign_in(tenant, email, FOREIGN).status_code) == (200, 401)


def test_owner_comes_in_by_reset_past_registrations_of_others(strict: TestTenant) -> None:
    email = new_address()
    for _ in range(3):
        register(strict, email, FOREIGN)
    links = [token_in(sent) for sent in proofs_to(email)]
    assert Api().post(FORGOT, {"tenant_id": str(strict.id), "email": email}).status_code == 200
    token = mails_to(email, RESET)[-1].body.partition("#token=")[2].split()[0]
    body = {"token": token, "password": OWN}
    assert verify(token=token).status_code == 400
    assert Api().post("/uflow/auth/enduser/password/reset", body).status_code == 200
    assert Api().post("/uflow/auth/enduser/password/reset", body).status_code == 400
    assert (sign_in(strict, email, OWN).status_code, sign_in(strict, email, FOREIGN).status_code) == (200, 401)
    assert [verify(token=link).status_code for link in links] == [400] * 3


def test_registrations_of_one_network_are_limited_not_those_of_others(strict: TestTenant, settings: Any) -> None:
    settings.PENDING_REGISTRATIONS_PER_ADDRESS, settings.PENDING_REGISTRATIONS_PER_NETWORK = 2, 4
    attacker, email = Api(), new_address()
    statuses = [register(strict, email, FOREIGN, attacker).status_code for _ in range(3)]
    statuses += [register(strict, new_address(), FOREIGN, attacker).status_code for _ in range(3)]
    assert statuses == [201, 201, 429, 201, 201, 429]
    own = register(strict, email, OWN)
    assert (own.status_code, verify(token=token_in(proofs_to(email)[-1])).json()["user_id"]) == (
        201,
        own.json()["user_id"],
    )


def test_registration_expires_and_can_be_repeated(strict: TestTenant) -> None:
    email = new_address()
    register(strict, email, FOREIGN)
    token = token_in(proofs_to(email)[-1])
    with in_tenant(strict.id):
        PendingRegistration.objects.filter(email_key=email).update(expires_at=now() - timedelta(seconds=1))
    assert (verify(token=token).status_code, sign_in(strict, email, FOREIGN).status_code) == (400, 401)
    register(strict, email, OWN)
    assert verify(token=token_in(proofs_to(email)[-1])).status_code == 200
    assert sign_in(strict, email, OWN).status_code == 200


def test_others_wrong_codes_do_not_end_the_owners_code(strict: TestTenant) -> None:
    email, owner = new_address(), Api()
    registered = register(strict, email, OWN, owner)
    code = code_in(proofs_to(email)[-1])
    wrong = f"{(int(code) + 1) % 1_000_000:06d}"
    attacker = Api()
    assert {by_code(strict, email, wrong, attacker).status_code for _ in range(6)} == {400}
    assert {by_code(strict, email, wrong).status_code for _ in range(25)} == {400}
    # From elsewhere, the code has no attempts left; for the owner's network and for who knows the id it has.
    assert by_code(strict, email, code).status_code == 400
    known_id = {"user_id": registered.json()["user_id"]}
    assert by_code(strict, email, wrong, **known_id).status_code == 400
    assert by_code(strict, email, code, owner).status_code == 200


@pytest.mark.parametrize("knows_id", [True, False])
def test_own_wrong_codes_end_the_code_and_not_the_link(strict: TestTenant, knows_id: bool) -> None:
    email, owner = new_address(), Api()
    registered = register(strict, email, OWN, owner)
    sent = proofs_to(email)[-1]
    wrong = f"{(int(code_in(sent)) + 1) % 1_000_000:06d}"
    fields = {"user_id": registered.json()["user_id"]} if knows_id else {}
    assert {by_code(strict, email, wrong, owner, **fields).status_code for _ in range(5)} == {400}
    assert by_code(strict, email, code_in(sent), owner, **fields).status_code == 400
    assert verify(token=token_in(sent)).status_code == 200


def test_code_with_the_id_is_that_of_this_registration(strict: TestTenant) -> None:
    email = new_address()
    attacker = register(strict, email, FOREIGN)
    foreign_code = code_in(proofs_to(email)[-1])
    own = register(strict, email, OWN)
    own_code = code_in(proofs_to(email)[-1])
    known_id = {"user_id": own.json()["user_id"]}
    assert by_code(strict, email, foreign_code, **known_id).status_code == 400
    assert by_code(strict, email, own_code, **known_id).json()["user_id"] == own.json()["user_id"]
    assert sign_in(strict, email, FOREIGN).status_code == 401
    assert attacker.json()["user_id"] != own.json()["user_id"]


def test_others_resend_leaves_link_and_code_valid(strict: TestTenant) -> None:
    for by in ("link", "code"):
        email = new_address()
        register(strict, email, OWN)
        (first,) = proofs_to(email)
        assert Api().post(RESEND, {"tenant_id": str(strict.id), "email": email}).status_code == 200
        second = proofs_to(email)[-1]
        assert (token_in(second), code_in(second)) == (token_in(first), code_in(first))
        done = verify(token=token_in(first)) if by == "link" else by_code(strict, email, code_in(first))
        assert done.status_code == 200


def test_waiting_change_does_not_take_a_fresh_registration(strict: TestTenant) -> None:
    mover, email = new_address(), new_address()
    register(strict, mover, FOREIGN)
    assert verify(token=token_in(proofs_to(mover)[-1])).status_code == 200
    token = sign_in(strict, mover, FOREIGN).json()["access_token"]
    change = {"email": email, "current_password": FOREIGN}
    assert Api(token=token).put("/authmgr/profile", change).status_code == 200
    (asked,) = proofs_to(email)
    own = register(strict, email, OWN)
    # The owner follows the older mail first: the address does not go to the attacker's account.
    assert verify(token=token_in(asked)).status_code == 409
    assert by_code(strict, email, code_in(asked)).status_code == 409
    assert verify(token=token_in(proofs_to(email)[-1])).json()["user_id"] == own.json()["user_id"]
    assert (sign_in(strict, email, OWN).status_code, sign_in(strict, mover, FOREIGN).status_code) == (200, 200)


def test_user_of_a_change_takes_the_address_with_a_proof(strict: TestTenant) -> None:
    mover, email = new_address(), new_address()
    register(strict, mover, OWN)
    assert verify(token=token_in(proofs_to(mover)[-1])).status_code == 200
    token = sign_in(strict, mover, OWN).json()["access_token"]
    assert Api(token=token).put("/authmgr/profile", {"email": email, "current_password": OWN}).status_code == 200
    (asked,) = proofs_to(email)
    register(strict, email, FOREIGN)
    foreign = proofs_to(email)[-1]
    assert Api(token=token).post(VERIFY, {"token": token_in(asked)}).status_code == 200
    assert verify(token=token_in(foreign)).status_code == 400
    assert (sign_in(strict, email, OWN).status_code, sign_in(strict, email, FOREIGN).status_code) == (200, 401)


def test_own_change_to_a_taken_address_tells_nothing(strict: TestTenant) -> None:
    mover, taken, free = new_address(), new_address(), new_address()
    for email in (mover, taken):
        register(strict, email, OWN)
        assert verify(token=token_in(proofs_to(email)[-1])).status_code == 200
    token = sign_in(strict, mover, OWN).json()["access_token"]
    bodies = []
    for email in (taken, free):
        changed = Api(token=token).put("/authmgr/profile", {"email": email, "current_password": OWN})
        assert changed.status_code == 200
        bodies.append({**changed.json(), "updated_at": ""})
    assert bodies[0] == bodies[1]
    assert (len(mails_to(taken, TAKEN)), len(proofs_to(taken)), len(proofs_to(free))) == (1, 1, 1)
    # Who may read all users is told.
    path = f"/uflow/user/enduser/{strict.id}/{bodies[0]['id']}"
    assert strict.api.put(path, {"email": taken}).status_code == 409


def test_invitation_and_admin_end_waiting_registrations(strict: TestTenant) -> None:
    email = new_address()
    register(strict, email, FOREIGN)
    link = token_in(proofs_to(email)[-1])
    invited = strict.api.post("/uflow/admin/invitations", {"email": email, "kind": "end_user"})
    assert invited.status_code == 201
    body = {"token": token_in(mails_to(email, "invited")[-1]), "password": OWN}
    assert Api().post("/uflow/invitations/accept", body).status_code == 201
    assert (verify(token=link).status_code, pending(strict, email)) == (400, 0)
    assert (sign_in(strict, email, OWN).status_code, sign_in(strict, email, FOREIGN).status_code) == (200, 401)


def test_unused_user_of_an_admin_gives_way_to_the_owner(strict: TestTenant) -> None:
    email = new_address()
    body = {"tenant_id": str(strict.id), "client_id": str(strict.client_id), "email": email, "provider": "google"}
    made = strict.api.post(REGISTER, body).json()["user_id"]
    register(strict, email, OWN)
    done = verify(token=token_in(proofs_to(email)[-1]))
    # The user of the admin goes on, with the password of the owner.
    assert (done.status_code, done.json()["user_id"]) == (200, made)
    assert sign_in(strict, email, OWN).json()["user"]["id"] == made


def test_user_with_granted_roles_is_not_taken_by_a_registration(strict: TestTenant) -> None:
    email, name = new_address(), f"staff-{secrets.token_hex(3)}"
    made = register(strict, email, OWN, strict.api).json()["user_id"]
    role = strict.api.post("/authmgr/roles", {"name": name, "permissions": ["reports:read"]}).json()["id"]
    assert strict.api.post(f"/authmgr/roles/{role}/bindings", {"user_ids": [made]}).status_code == 200
    before = len(proofs_to(email))
    assert register(strict, email, FOREIGN).status_code == 201
    # Only the user of the admin gets its own mail again.
    assert token_in(proofs_to(email)[-1]) == token_in(proofs_to(email)[before - 1])
    assert verify(token=token_in(proofs_to(email)[-1])).json()["user_id"] == made
    assert (sign_in(strict, email, OWN).status_code, sign_in(strict, email, FOREIGN).status_code) == (200, 401)


def test_password_of_an_admin_replaces_no_waiting_registration(strict: TestTenant) -> None:
    email = new_address()
    register(strict, email, OWN)
    link = token_in(proofs_to(email)[-1])
    # The mail to the owner would verify the admin's password.
    refused = register(strict, email, FOREIGN, strict.api)
    assert (refused.status_code, "Invite" in refused.json()["message"]) == (409, True)
    assert verify(token=link).status_code == 200
    assert sign_in(strict, email, OWN).status_code == 200


@pytest.mark.parametrize("given", [{"external_id": "legacy|{}"}, {"app_metadata": {"plan": "enterprise"}}])
def test_imported_user_is_not_taken_by_a_registration(strict: TestTenant, given: dict[str, Any]) -> None:
    email = new_address()
    row = {
        "email": email,
        **{name: value if isinstance(value, dict) else value.format(email) for name, value in given.items()},
    }
    body = {"tenant_id": str(strict.id), "rows": [row]}
    assert strict.api.post("/uflow/admin/enduser/import", body).json()["created"] == 1
    assert register(strict, email, FOREIGN).status_code == 201
    for mail in proofs_to(email):
        verify(token=token_in(mail))
    assert sign_in(strict, email, FOREIGN).status_code == 401
    # The owner of the address sets the password by mail.
    assert Api().post(FORGOT, {"tenant_id": str(strict.id), "email": email}).status_code == 200
    reset = {"token": token_in(mails_to(email, RESET)[-1]), "password": OWN}
    assert Api().post("/uflow/auth/enduser/password/reset", reset).status_code == 200
    assert sign_in(strict, email, OWN).status_code == 200


def test_codes_of_one_address_are_limited_over_all_callers(strict: TestTenant, settings: Any) -> None:
    settings.LIMITS = {**settings.LIMITS, "email_codes": (3, 3600)}
    email = new_address()
    own = register(strict, email, OWN)
    sent = proofs_to(email)[-1]
    for _ in range(3):
        other = register(strict, email, FOREIGN, Api())
        assert by_code(strict, email, "000000", Api(), user_id=other.json()["user_id"]).status_code == 400
    assert by_code(strict, email, code_in(sent), user_id=own.json()["user_id"]).status_code == 400
    assert verify(token=token_in(sent)).status_code == 200


def test_held_back_mails_use_up_no_budget_of_others(strict: TestTenant, settings: Any) -> None:
    settings.LIMITS = {**settings.LIMITS, "mail": (4, 3600), "mail_address_network": (2, 3600)}
    email, attacker = new_address(), Api()
    for _ in range(5):
        assert register(strict, email, FOREIGN, attacker).status_code == 201
    assert len(proofs_to(email)) == 2
    own = register(strict, email, OWN)
    assert verify(token=token_in(proofs_to(email)[-1])).json()["user_id"] == own.json()["user_id"]


def test_admins_of_one_tenant_leave_the_mails_of_others(
    strict: TestTenant, new_tenant: Callable[[], TestTenant], settings: Any
) -> None:
    settings.LIMITS = {**settings.LIMITS, "mail_address_hour": (10, 3600), "mail_address_network": (3, 3600)}
    email, elsewhere = new_address(), new_tenant()
    invited = elsewhere.api.post("/uflow/admin/invitations", {"email": email, "kind": "end_user"}).json()["id"]
    for _ in range(6):
        elsewhere.api.post(f"/uflow/admin/invitations/{invited}/resend")
    assert len(mails_to(email, "invited")) == 3
    own = register(strict, email, OWN)
    assert verify(token=token_in(proofs_to(email)[-1])).json()["user_id"] == own.json()["user_id"]


def test_setting_can_change_while_registrations_wait(new_tenant: Callable[[], TestTenant]) -> None:
    tenant, email = new_tenant(), new_address()
    require_verification(tenant, "required")
    register(tenant, email, OWN)
    link = token_in(proofs_to(email)[-1])
    require_verification(tenant, "off")
    # No user has verified the address yet, so it can be registered; the owner's link still wins over an unused record.
    assert register(tenant, email, FOREIGN).status_code == 201
    assert verify(token=link).status_code == 200
    assert (sign_in(tenant, email, OWN).status_code, sign_in(tenant, email, FOREIGN).status_code) == (200, 401)
    other = new_address()
    register(tenant, other, FOREIGN)
    require_verification(tenant, "required")
    register(tenant, other, OWN)
    assert verify(token=token_in(proofs_to(other)[-1])).status_code == 200
    assert (sign_in(tenant, other, OWN).status_code, sign_in(tenant, other, FOREIGN).status_code) == (200, 401)


def test_registrations_of_two_tenants_are_apart(strict: TestTenant, new_tenant: Callable[[], TestTenant]) -> None:
    elsewhere, email = new_tenant(), new_address()
    require_verification(elsewhere, "required")
    register(strict, email, OWN)
    here = proofs_to(email)[-1]
    other_id = register(elsewhere, email, FOREIGN).json()["user_id"]
    assert by_code(elsewhere, email, code_in(here)).status_code == 400
    assert by_code(strict, email, code_in(here), user_id=other_id).status_code == 400
    assert verify(token=token_in(here)).status_code == 200
    assert (sign_in(elsewhere, email, FOREIGN).status_code, pending(elsewhere, email)) == (403, 1)


def test_mails_to_one_address_are_limited_over_tenants(
    strict: TestTenant, new_tenant: Callable[[], TestTenant], settings: Any
) -> None:
    settings.LIMITS = {**settings.LIMITS, "mail_address_hour": (10, 3600), "mail_address_network": (3, 3600)}
    email, elsewhere = new_address(), new_tenant()
    require_verification(elsewhere, "required")
    attacker = Api()
    for tenant in (strict, elsewhere) * 3:
        assert register(tenant, email, FOREIGN, attacker).status_code == 201
    assert len(proofs_to(email)) == 3
    # Another caller's network has only its share.
    own = register(strict, email, OWN)
    assert verify(token=token_in(proofs_to(email)[-1])).json()["user_id"] == own.json()["user_id"]
    for _ in range(6):
        assert register(elsewhere, email, FOREIGN).status_code == 201
    assert len(mails_to(email)) == 8
    # A fifth is kept for the owner, who is known by the network of a sign-in.
    signed_in = Api()
    body = {"client_id": str(strict.client_id), "email": email, "password": OWN}
    assert signed_in.post(LOGIN, body).status_code == 200
    for api, number in ((Api(), 8), (signed_in, 9)):
        assert api.post(FORGOT, {"tenant_id": str(strict.id), "email": email}).status_code == 200
        assert len(mails_to(email)) == number


def test_forgot_of_unknown_callers_leaves_the_owners(strict: TestTenant) -> None:
    email, home = new_address(), Api()
    register(strict, email, OWN)
    assert verify(token=token_in(proofs_to(email)[-1])).status_code == 200
    body = {"client_id": str(strict.client_id), "email": email, "password": OWN}
    assert home.post(LOGIN, body).status_code == 200
    asked = {"tenant_id": str(strict.id), "email": email}
    assert [Api().post(FORGOT, asked).status_code for _ in range(6)] == [200] * 5 + [429]
    before = len(mails_to(email, RESET))
    assert home.post(FORGOT, asked).status_code == 200
    assert len(mails_to(email, RESET)) == before + 1
