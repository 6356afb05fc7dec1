"""Verify e-mail addresses by link or code, and pending changes of address."""

import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connections
from django.utils.timezone import now

from tenants.entering.context import in_tenant, tenant_atomic
from tests.copies import change_tenant
from tests.userflow.mailbox import code_in, mails_to, token_in
from tests.userflow.sessions.aged import aged
from tests.userflow.user_index.reading import indexed
from tests.world import PASSWORD, Api, TestTenant, User, build_tenant, capture_statements
from userflow.accounts.models import EndUser
from userflow.credentials.email_verification import give_up_changes
from userflow.credentials.models import EmailProof, PendingRegistration
from userflow.mail_delivery import background

VERIFY, RESEND = "/uflow/user/email/verify", "/uflow/user/email/resend"
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"
PROOF, TOLD = "verify your e-mail address", "address is changing"


@pytest.fixture(scope="module")
def strict(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """Return a tenant that requires verified addresses."""
    with django_db_blocker.unblock():
        return strict_tenant()


def strict_tenant() -> TestTenant:

    tenant = build_tenant("strict")
    change_tenant(tenant.id, settings={"email_verification": "required"})
    return tenant


def new_address() -> str:
    return f"proof-{secrets.token_hex(5)}@example.com"


def sign_in(tenant: TestTenant, email: str, password: str = PASSWORD) -> Any:
    body = {"client_id": str(tenant.client_id), "email": email, "password": password}
    return Api().post("/uflow/auth/enduser/login", body)


def verify(**body: Any) -> Any:
    return Api().post(VERIFY, body)


def by_code(tenant: TestTenant, email: str, code: str, api: Api | None = None) -> Any:
    return (api or Api()).post(VERIFY, {"tenant_id": str(tenant.id), "email": email, "code": code})


def last_proof(email: str) -> Any:
    return mails_to(email, PROOF)[-1]


def verified_user(tenant: TestTenant, email: str | None = None) -> User:
    """Return a user with a verified address."""
    person = tenant.register(email)
    assert verify(token=token_in(last_proof(person.email))).status_code == 200
    return person


def made_by_admin(tenant: TestTenant) -> User:
    """Return a user whose address is not verified: only a registration by the user itself waits without a user."""
    body = {"tenant_id": str(tenant.id), "client_id": str(tenant.client_id), "email": new_address()}
    made = tenant.api.post("/uflow/user/clients/register", {**body, "password": PASSWORD}).json()
    return User(UUID(made["user_id"]), made["email"])


def change(tenant: TestTenant, person: User, email: str) -> Any:
    body = {"email": email, "current_password": PASSWORD}
    return tenant.as_user(person).put(f"/uflow/user/enduser/{tenant.id}/{person.id}", body)


def another_code(code: str) -> str:
    return f"{(int(code) + 1) % 1_000_000:06d}"


def test_login_requires_verified_address(strict: TestTenant) -> None:
    person = strict.register()
    rejected = sign_in(strict, person.email)
    assert (rejected.status_code, "Verify your e-mail address first" in rejected.json()["message"]) == (403, True)
    assert "X-Enrollment-Ticket" not in rejected.headers
    assert sign_in(strict, person.email, "wrong password").status_code == 401
    done = verify(token=token_in(last_proof(person.email)))
    assert (done.status_code, done.json()["email"], done.json()["verified"]) == (200, person.email, True)
    assert sign_in(strict, person.email).status_code == 200


def test_code_verifies_the_address(strict: TestTenant) -> None:
    person = strict.register()
    assert by_code(strict, person.email.upper(), code_in(last_proof(person.email))).status_code == 200
    assert sign_in(strict, person.email).status_code == 200


def test_correct_password_of_unverified_user_locks_nothing(strict: TestTenant) -> None:
    person = strict.register()
    assert [sign_in(strict, person.email).status_code for _ in range(12)] == [403] * 12


def test_optional_verification_sends_mail_and_allows_login(tenant: TestTenant) -> None:
    person = tenant.register()
    assert sign_in(tenant, person.email).status_code == 200
    assert verify(token=token_in(last_proof(person.email))).json()["verified"] is True


def test_link_and_code_are_single_use(strict: TestTenant) -> None:
    person = strict.register()
    sent = last_proof(person.email)
    assert verify(token=token_in(sent)).status_code == 200
    assert verify(token=token_in(sent)).status_code == 400
    assert by_code(strict, person.email, code_in(sent)).status_code == 400


def test_one_of_parallel_verifications_wins(strict: TestTenant) -> None:
    token = token_in(last_proof(strict.register().email))

    def attempt(_: int) -> int:
        try:
            return int(verify(token=token).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(10) as pool:
        assert sorted(pool.map(attempt, range(10))) == [200] + [400] * 9


def test_five_wrong_codes_void_only_the_code(strict: TestTenant) -> None:
    person = strict.register()
    sent = last_proof(person.email)
    wrong, api = another_code(code_in(sent)), Api()
    assert [by_code(strict, person.email, wrong, api).status_code for _ in range(5)] == [400] * 5
    # For the caller who has sent them.
    assert by_code(strict, person.email, code_in(sent), api).status_code == 400
    assert verify(token=token_in(sent)).status_code == 200


def test_parallel_guesses_are_all_counted(strict: TestTenant) -> None:
    person = strict.register()
    sent, api = last_proof(person.email), Api()

    def guess(number: int) -> int:
        wrong = f"{(int(code_in(sent)) + 1 + number) % 1_000_000:06d}"
        try:
            return int(by_code(strict, person.email, wrong, api).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(guess, range(8))) == {400}
    assert by_code(strict, person.email, code_in(sent), api).status_code == 400


def test_code_expires_after_30_minutes_and_link_after_a_day(strict: TestTenant) -> None:
    person, other = strict.register(), strict.register()
    with in_tenant(strict.id):
        PendingRegistration.objects.filter(pk=person.id).update(created_at=now() - timedelta(minutes=31))
        PendingRegistration.objects.filter(pk=other.id).update(expires_at=now() - timedelta(seconds=1))
    assert by_code(strict, person.email, code_in(last_proof(person.email))).status_code == 400
    assert verify(token=token_in(last_proof(person.email))).status_code == 200
    assert verify(token=token_in(last_proof(other.email))).status_code == 400


def test_unknown_wrong_and_foreign_proofs_get_one_response(strict: TestTenant, tenant: TestTenant) -> None:
    person = strict.register()
    sent = last_proof(person.email)
    code, secret = code_in(sent), token_in(sent).partition(".")[2]
    responses = [
        by_code(strict, person.email, another_code(code)),
        by_code(strict, new_address(), code),
        by_code(tenant, person.email, code),
        verify(tenant_id=UNKNOWN_ID, email=person.email, code=code),
        verify(token=f"{tenant.id.hex}.{secret}"),
        verify(token=f"p.{secret}"),
        verify(token="x"),
        verify(token=f"{UNKNOWN_ID.replace('-', '')}.{secret}"),
    ]
    assert {response.status_code for response in responses} == {400}
    assert len({response.content for response in responses}) == 1
    assert verify(token=token_in(sent)).status_code == 200


@pytest.mark.parametrize("code", ["12345", "1234567", "abcdef", "１２３４５６", " 12345", "-12345"])
def test_malformed_code_is_400(strict: TestTenant, code: str) -> None:
    person = strict.register()
    assert by_code(strict, person.email, code).status_code == 400
    assert by_code(strict, person.email, code_in(last_proof(person.email))).status_code == 200


@pytest.mark.parametrize("body", [{}, {"email": "a@example.com"}, {"code": "123456"}, {"token": 5}, {"token": None}])
def test_incomplete_proof_names_missing_fields(body: dict[str, Any]) -> None:
    response = Api().post(VERIFY, body)
    assert response.status_code == 400
    assert response.json()["details"]


def test_resend_repeats_what_is_valid_and_reveals_nothing(strict: TestTenant) -> None:
    person = strict.register()
    first = last_proof(person.email)
    known = Api().post(RESEND, {"tenant_id": str(strict.id), "email": person.email})
    unknown = Api().post(RESEND, {"tenant_id": str(strict.id), "email": new_address()})
    nowhere = Api().post(RESEND, {"tenant_id": UNKNOWN_ID, "email": person.email})
    assert known.status_code == unknown.status_code == nowhere.status_code == 200
    assert known.content == unknown.content == nowhere.content
    assert len(mails_to(person.email, PROOF)) == 2
    # The caller may be another person, who must not void what the owner of the address has received.
    assert code_in(last_proof(person.email)) == code_in(first)
    assert verify(token=token_in(first)).status_code == 200
    assert Api().post(RESEND, {"tenant_id": str(strict.id), "email": person.email}).status_code == 200
    assert len(mails_to(person.email, PROOF)) == 2


def test_resend_is_limited_per_address(strict: TestTenant) -> None:
    most, _ = settings.LIMITS["email_resend"]
    for email in (strict.register().email, new_address()):
        responses = [Api().post(RESEND, {"tenant_id": str(strict.id), "email": email}) for _ in range(most + 1)]
        assert [response.status_code for response in responses] == [200] * most + [429]
        assert int(responses[-1].headers["Retry-After"]) > 0


def test_pending_address_applies_once_verified(strict: TestTenant) -> None:
    person, new = verified_user(strict), new_address()
    response = change(strict, person, new)
    assert (response.status_code, response.json()["email"], "once it is verified" in response.json()["message"]) == (
        200,
        person.email,
        True,
    )
    assert (sign_in(strict, person.email).status_code, sign_in(strict, new).status_code) == (200, 401)
    (told,) = mails_to(person.email, TOLD)
    assert "replaces this one once it is verified" in told.body
    assert new not in told.body
    assert by_code(strict, new, code_in(last_proof(new))).json()["email"] == new
    assert (sign_in(strict, person.email).status_code, sign_in(strict, new).status_code) == (401, 200)
    assert (indexed(strict, person.email), indexed(strict, new)) == ([], [person.id])


def test_verified_new_address_voids_reset_links(strict: TestTenant) -> None:
    person, new = verified_user(strict), new_address()
    asked = {"email": person.email, "tenant_id": str(strict.id)}
    assert Api().post("/uflow/auth/enduser/password/forgot", asked).status_code == 200
    link = mails_to(person.email, "new password")[-1].body.partition("token=")[2].split()[0]
    change(strict, person, new)
    assert verify(token=token_in(last_proof(new))).status_code == 200
    body = {"token": link, "password": "another horse 8 battery"}
    assert Api().post("/uflow/auth/enduser/password/reset", body).status_code == 400


def test_resend_and_verify_reject_inactive_users(strict: TestTenant) -> None:
    newcomer, mover, new = made_by_admin(strict), verified_user(strict), new_address()
    change(strict, mover, new)
    waiting = {newcomer.email: newcomer, new: mover}
    for address, person in waiting.items():
        token = token_in(last_proof(address))
        with in_tenant(strict.id):
            EndUser.objects.filter(pk=person.id).update(active=False)
        assert Api().post(RESEND, {"tenant_id": str(strict.id), "email": address}).status_code == 200
        assert len(mails_to(address, PROOF)) == 1
        assert verify(token=token).status_code == 400


def test_address_applies_at_once_without_verification(tenant: TestTenant) -> None:
    person, new = tenant.register(), new_address()
    assert change(tenant, person, new).json()["email"] == new
    assert len(mails_to(person.email, TOLD)) == 1
    assert (sign_in(tenant, person.email).status_code, sign_in(tenant, new).status_code) == (401, 200)
    assert (indexed(tenant, person.email), indexed(tenant, new)) == ([], [person.id])
    assert verify(token=token_in(last_proof(new))).json()["email"] == new


def test_change_by_an_admin_is_pending_too(strict: TestTenant) -> None:
    person, new = verified_user(strict), new_address()
    response = strict.api.put(f"/uflow/user/enduser/{strict.id}/{person.id}", {"email": new, "name": "New"})
    assert (response.json()["email"], response.json()["name"]) == (person.email, "New")
    assert verify(token=token_in(last_proof(new))).status_code == 200


def test_change_to_taken_address_is_409(strict: TestTenant) -> None:
    person, other_user, new = verified_user(strict), verified_user(strict), new_address()
    path = f"/uflow/user/enduser/{strict.id}/{person.id}"
    assert strict.api.put(path, {"email": other_user.email.upper()}).status_code == 409
    # Users are not told who has an account: the change waits like any other.
    assert change(strict, person, other_user.email.upper()).status_code == 200
    assert change(strict, person, new).status_code == 200
    token = token_in(last_proof(new))
    verified_user(strict, new)
    assert verify(token=token).status_code == 409
    assert sign_in(strict, person.email).status_code == 200


def test_codes_identify_users_with_one_pending_address(strict: TestTenant) -> None:
    first, second, new = verified_user(strict), verified_user(strict), new_address()
    change(strict, first, new)
    code_of_first = code_in(last_proof(new))
    change(strict, second, new)
    assert by_code(strict, new, code_of_first).json()["user_id"] == str(first.id)
    assert verify(token=token_in(last_proof(new))).status_code == 409


def resend(tenant: TestTenant, email: str) -> None:
    assert Api().post(RESEND, {"tenant_id": str(tenant.id), "email": email}).status_code == 200


def test_resend_serves_owner_of_the_address_only(strict: TestTenant) -> None:
    new, rivals = new_address(), [verified_user(strict) for _ in range(4)]
    for rival in rivals:
        change(strict, rival, new)
    owner = strict.register(new)
    assert len(mails_to(new, PROOF)) == 5
    resend(strict, new)
    assert len(mails_to(new, PROOF)) == 6
    done = verify(token=token_in(last_proof(new)))
    assert (done.status_code, done.json()["user_id"]) == (200, str(owner.id))
    resend(strict, new)
    assert len(mails_to(new, PROOF)) == 6


def test_resend_mails_all_users_who_wait_for_an_address(strict: TestTenant) -> None:
    first, second, new = verified_user(strict), verified_user(strict), new_address()
    for person in (first, second):
        change(strict, person, new)
    begun = mails_to(new, PROOF)
    resend(strict, new)
    again = mails_to(new, PROOF)[len(begun) :]
    assert {token_in(sent) for sent in begun} == {token_in(sent) for sent in again}
    # The first verification gives the address to one of them.
    assert [verify(token=token_in(sent)).status_code for sent in begun] == [200, 409]
    assert "asks to change to this address" in again[0].body


def test_resend_keeps_the_expiry_of_a_change(strict: TestTenant) -> None:
    person, new = verified_user(strict), new_address()
    change(strict, person, new)
    with in_tenant(strict.id):
        EmailProof.objects.filter(pk=person.id).update(expires_at=(until := now() + timedelta(minutes=5)))
    resend(strict, new)
    token = token_in(last_proof(new))
    with in_tenant(strict.id):
        assert EmailProof.objects.get(pk=person.id).expires_at == until
        EmailProof.objects.filter(pk=person.id).update(expires_at=now())
    resend(strict, new)
    assert len(mails_to(new, PROOF)) == 2
    assert verify(token=token).status_code == 400


def test_resend_does_not_revive_cancelled_change(strict: TestTenant) -> None:
    person, new = verified_user(strict), new_address()
    change(strict, person, new)
    with ThreadPoolExecutor(1) as pool:
        with in_tenant(strict.id), tenant_atomic():
            give_up_changes([person.id])
            pool.submit(resend, strict, new).result()
            time.sleep(0.3)
        assert len(mails_to(new, PROOF)) == 1
    with in_tenant(strict.id):
        assert not EmailProof.objects.filter(pk=person.id).exists()


def test_current_address_cancels_a_pending_change(strict: TestTenant) -> None:
    person, new = verified_user(strict), new_address()
    change(strict, person, new)
    change(strict, person, person.email)
    assert verify(token=token_in(last_proof(new))).status_code == 400
    assert sign_in(strict, person.email).status_code == 200


def test_password_change_cancels_a_pending_address(strict: TestTenant) -> None:
    # A mail tells the old address: an attacker with a stolen session must not keep the user through an older mail.
    person, wanted = verified_user(strict), new_address()
    assert change(strict, person, wanted).status_code == 200
    body = {"current_password": PASSWORD, "new_password": "another horse 9 battery"}
    assert strict.as_user(person).post("/authmgr/profile/password", body).status_code == 200
    assert verify(token=token_in(last_proof(wanted))).status_code == 400


def test_deactivation_cancels_a_pending_address(strict: TestTenant) -> None:
    person, wanted = verified_user(strict), new_address()
    assert change(strict, person, wanted).status_code == 200
    for active in (False, True):
        path = f"/uflow/user/enduser/{strict.id}/{person.id}/status"
        assert strict.api.put(path, {"active": active}).status_code == 200
    assert verify(token=token_in(last_proof(wanted))).status_code == 400


def test_reset_verifies_the_address(strict: TestTenant) -> None:
    person = strict.register()
    sent = last_proof(person.email)
    forgot = {"email": person.email, "tenant_id": str(strict.id)}
    assert Api().post("/uflow/auth/enduser/password/forgot", forgot).status_code == 200
    (reset,) = mails_to(person.email, "new password")
    body = {"token": reset.body.partition("token=")[2].split()[0], "password": "another horse 9 battery"}
    assert Api().post("/uflow/auth/enduser/password/reset", body).status_code == 200
    assert sign_in(strict, person.email, body["password"]).status_code == 200
    assert verify(token=token_in(sent)).status_code == 400


def test_change_of_address_requires_recent_sign_in(strict: TestTenant, tenant: TestTenant) -> None:
    for place in (strict, tenant):
        person = verified_user(place) if place is strict else place.register()
        api = Api(token=aged(place.sign_in(person)["access_token"], minutes=16))
        path = f"/uflow/user/enduser/{place.id}/{person.id}"
        rejected = api.put(path, {"email": new_address(), "name": "Another Name", "current_password": PASSWORD})
        assert (rejected.status_code, rejected.json()["code"]) == (401, "insufficient_user_authentication")
        assert api.put(path, {"email": person.email, "name": "Some Two"}).status_code == 200


def test_invitation_mails_are_limited(strict: TestTenant) -> None:
    person = verified_user(strict)
    api = strict.as_user(person)
    most, _ = settings.LIMITS["email_resend"]
    path = f"/uflow/user/enduser/{strict.id}/{person.id}"
    bodies = [{"email": new_address(), "current_password": PASSWORD} for _ in range(most + 1)]
    responses = [api.put(path, body).status_code for body in bodies]
    assert responses == [200] * most + [429]


def test_change_limit_is_counted_per_tenant(strict: TestTenant, settings: Any) -> None:
    settings.LIMITS = {**settings.LIMITS, "email_resend": (1, 3600)}
    person, there = verified_user(strict), strict_tenant()
    # An import can set ids, so a user of another tenant may have the same id.
    row = {"id": str(person.id), "email": new_address()}
    assert (
        there.api.post("/uflow/admin/enduser/import", {"tenant_id": str(there.id), "rows": [row]}).json()["created"]
        == 1
    )
    path = f"/uflow/user/enduser/{there.id}/{person.id}"
    assert [there.api.put(path, {"email": new_address()}).status_code for _ in range(2)] == [200, 429]
    assert change(strict, person, new_address()).status_code == 200


def test_change_notifications_are_limited(tenant: TestTenant, other_tenant: TestTenant, settings: Any) -> None:
    settings.LIMITS = {**settings.LIMITS, "mail": (3, 3600), "email_resend": (20, 3600)}
    wanted = new_address()
    for place, told in ((tenant, 3), (other_tenant, 6)):
        person = place.register()
        for _ in range(5):
            assert change(place, person, wanted).status_code == 200
            assert change(place, User(person.id, wanted), person.email).status_code == 200
        # The limit is counted per tenant, so changes in another tenant suppress no mail here.
        assert (len(mails_to(wanted, TOLD)), len(mails_to(wanted, PROOF))) == (told, told)


def test_existing_user_verifies_address_by_resend(new_tenant: Callable[[], TestTenant]) -> None:

    tenant = new_tenant()
    person = tenant.register()
    change_tenant(tenant.id, settings={"email_verification": "required"})
    assert sign_in(tenant, person.email).status_code == 403
    Api().post(RESEND, {"tenant_id": str(tenant.id), "email": person.email})
    assert verify(token=token_in(last_proof(person.email))).status_code == 200
    assert sign_in(tenant, person.email).status_code == 200


def test_invitation_verifies_the_address(strict: TestTenant) -> None:
    email = new_address()
    strict.api.post("/uflow/admin/invitations", {"email": email, "kind": "end_user"})
    token = token_in(mails_to(email, "invited")[-1])
    assert Api().post("/uflow/invitations/accept", {"token": token, "password": PASSWORD}).status_code == 201
    assert sign_in(strict, email).status_code == 200


def test_verify_rejects_erased_and_deactivated_users(strict: TestTenant) -> None:
    erased, switched_off = made_by_admin(strict), made_by_admin(strict)
    body = {"tenant_id": str(strict.id), "user_id": str(erased.id)}
    deleted = strict.api.post("/uflow/user/enduser/delete_all", body).json()["deleted"]
    assert deleted["email_proofs"] == 1
    strict.api.put(f"/uflow/user/enduser/{strict.id}/{switched_off.id}/status", {"active": False})
    assert verify(token=token_in(last_proof(erased.email))).status_code == 400
    assert verify(token=token_in(last_proof(switched_off.email))).status_code == 400


def test_token_and_code_are_stored_hashed_and_not_audited(strict: TestTenant) -> None:
    person = strict.register()
    sent = last_proof(person.email)
    with in_tenant(strict.id):
        row = repr(
            {
                name: bytes(value) if isinstance(value, memoryview) else value
                for name, value in PendingRegistration.objects.filter(pk=person.id).values().get().items()
            }
        )
        assert not EndUser.objects.filter(pk=person.id).exists()
    by_code(strict, person.email, another_code(code_in(sent)))
    verify(token=token_in(sent))
    trail = strict.api.get("/uflow/admin/audit", {"target": str(person.id)})
    assert [event["action"] for event in trail.json()["events"]][:2] == ["email.proven", "email.proof_refused"]
    for text in (row, trail.content.decode()):
        assert token_in(sent).partition(".")[2] not in text
        assert f"'{code_in(sent)}'" not in text
    assert person.email not in trail.content.decode()


def test_verify_has_constant_statement_count(strict: TestTenant) -> None:
    person = strict.register()
    token = token_in(last_proof(person.email))
    with capture_statements() as seen:
        assert verify(token=token).status_code == 200
    # Tenant, proof and registration read, other users of the address locked, registrations locked
    # and deleted, user and role stored, audit event.
    assert seen.default == []
    assert len(seen.tenant) <= 17
    with capture_statements() as asked:
        Api().post(RESEND, {"tenant_id": str(strict.id), "email": person.email})
    assert background.settle()
    # The address is looked up after the response, so its timing reveals nothing.
    assert asked.counts == (0, 2)
    assert 'INSERT INTO "userflow_tenantmail"' in asked.tenant[-1]
