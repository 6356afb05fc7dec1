"""Account pages over HTTP: changes obey the proof policy, and act on the own account only."""

import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from django.utils.timezone import now
from pytest_django.fixtures import Settings

from identity_platform.audit.models import TenantEvent
from mfa.webauthn.models import EndUserPasskey
from tenants.entering.context import in_tenant
from tests.city_file import write_city_file
from tests.copies import change_tenant
from tests.mfa.people import TestUser, new_user
from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.userflow.mailbox import mails_to
from tests.world import PASSWORD, TestTenant, User
from userflow.accounts.models import EndUser
from userflow.accounts.session_models import EndUserSession
from userflow.credentials.models import EmailProof

NEW = "another horse 8 battery"


def signed_in(tenant: TestTenant, user: User | None = None) -> Visitor:
    visitor = Visitor(tenant)
    visitor.signs_in(user or tenant.register())
    assert visitor.at == "account"
    return visitor


def row_of(user: User, tenant: TestTenant) -> EndUser:
    with in_tenant(tenant.id):
        return EndUser.objects.get(pk=user.id)


def test_account_needs_a_session(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    for path in (
        "account",
        "account/security",
        "account/data",
        "account/devices",
        f"account/remove/{uuid4()}",
        f"account/rename/{uuid4()}",
        "signout",
    ):
        visitor.opens(path)
        assert visitor.at == "signin"


def test_name_is_changed(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor = signed_in(tenant, user)
    visitor.sends(name="Nina New")
    assert "Your changes are saved." in visitor.words
    assert row_of(user, tenant).name == "Nina New"


def test_language_is_that_of_the_next_page(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor = signed_in(tenant, user)
    visitor.client.defaults["HTTP_ACCEPT_LANGUAGE"] = "fr"
    visitor.sends(name="Some One", language="pt")
    assert visitor.page.status_code == 400
    assert row_of(user, tenant).language == ""
    visitor.sends(name="Some One", language="de")
    assert '<html lang="de">' in visitor.text
    assert '<option value="de" selected>Deutsch</option>' in visitor.text
    with in_tenant(tenant.id):
        event = TenantEvent.objects.get(action="end_user.updated", target_id=user.id)
    assert event.details == {"changed": ["language"]}
    visitor.sends(name="Some One", language="")
    assert '<html lang="fr">' in visitor.text


def test_events_of_account_pages_name_the_user(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor = signed_in(tenant, user)
    visitor.opens("account")
    visitor.sends(name="Vera Visitor")
    with in_tenant(tenant.id):
        event = TenantEvent.objects.get(action="end_user.updated", target_id=user.id)
    assert (event.actor_kind, event.actor_id) == ("end_user", str(user.id))


def test_password_change_asks_for_a_proof(tenant: TestTenant) -> None:
    user = tenant.register()
    elsewhere, visitor = signed_in(tenant, user), signed_in(tenant, user)
    visitor.opens("account/password")
    assert visitor.at == "step-up"
    visitor.sends(password="wrong password 1")
    assert visitor.page.status_code == 400
    visitor.sends(password=PASSWORD)
    assert visitor.at == "account/password"
    visitor.sends(password="short")
    assert visitor.page.status_code == 400
    visitor.sends(password=NEW)
    assert visitor.at == "account/security"
    elsewhere.opens("account")
    assert elsewhere.at == "signin"
    assert tenant.sign_in(User(user.id, user.email, password=NEW))


def test_proof_works_once(tenant: TestTenant) -> None:
    visitor, person = with_app(tenant)
    visitor.opens("step-up?next=password&method=backup_code")
    visitor.sends(backup_code=person.backup_codes[0])
    visitor.sends(password=NEW)
    assert visitor.at == "account/security"
    visitor.opens("account/password")
    assert visitor.at == "step-up"


def test_new_address_gets_a_mail(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor, new = signed_in(tenant, user), f"new-{user.email}"
    visitor.opens("account/email")
    visitor.sends(password=PASSWORD)
    visitor.sends(email=new)
    assert visitor.at == "account"
    assert mails_to(new, "verify")


def test_new_address_does_not_tell_who_has_an_account(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    user, taken, free = tenant.register(), tenant.register(), f"free-{secrets.token_hex(5)}@example.com"
    with in_tenant(tenant.id):
        EndUser.objects.update(email_verified_at=now())
    change_tenant(tenant.id, settings={"email_verification": "required"})
    visitor = signed_in(tenant, user)
    pages = []
    for email in (taken.email, free):
        visitor.opens("account/email")
        visitor.sends(password=PASSWORD)
        visitor.sends(email=email)
        pages.append((visitor.at, visitor.page.status_code, visitor.words.replace(email, "")))
        visitor.opens("account/data")
        pages[-1] += (visitor.text.count(email),)
    assert pages[0] == pages[1]
    assert pages[0][:2] == ("account", 200)
    assert mails_to(taken.email, "already have an account")
    assert mails_to(free, "verify")


def test_present_address_sends_no_mail_and_keeps_the_proof(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor = signed_in(tenant, user)
    visitor.opens("account/email")
    visitor.sends(password=PASSWORD)
    visitor.sends(email=user.email)
    assert visitor.at == "account"
    assert "Your e-mail address stays as it is." in visitor.words
    assert "We have sent a mail" not in visitor.words
    visitor.opens("account/email")
    assert visitor.at == "account/email"
    visitor.sends(email=user.email.upper())
    assert "Your changes are saved." in visitor.words


def test_profile_sends_a_mail_that_verifies_the_address(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor = signed_in(tenant, user)
    with in_tenant(tenant.id):
        # The code of the registration has expired.
        EmailProof.objects.filter(user_id=user.id).delete()
    visitor.opens("account")
    sent = len(mails_to(user.email, "verify"))
    visitor.sends("verify-email", email=user.email, again="1")
    assert visitor.at == "verify-email"
    assert len(mails_to(user.email, "verify")) == sent + 1
    assert "If you have none, or it is no longer valid, send another one." in visitor.words


def with_app(tenant: TestTenant) -> tuple[Visitor, TestUser]:
    person, visitor = new_user(tenant).enrol_totp(), Visitor(tenant)
    visitor.opens("signin")
    visitor.sends(email=person.email, password=PASSWORD)
    visitor.sends(code=person.code(1))
    assert visitor.at == "account"
    return visitor, person


def test_factor_is_removed_after_a_step_up(tenant: TestTenant) -> None:
    visitor, person = with_app(tenant)
    visitor.opens("account/security")
    link = re.search(r"account/remove/[0-9a-f-]{36}", visitor.text)
    assert link
    visitor.opens(link[0])
    assert visitor.at == "step-up"
    visitor.opens(f"step-up?next={link[0].removeprefix('account/')}&method=backup_code")
    visitor.sends(backup_code=person.backup_codes[0])
    assert visitor.at == link[0]
    visitor.sends()
    assert visitor.at == "account/security"
    assert person.row().mfa_methods == []


def test_passkey_is_renamed(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor = signed_in(tenant, user)
    with in_tenant(tenant.id):
        row = EndUserPasskey.objects.create(
            user_id=user.id, credential_id=uuid4().bytes, aaguid=UUID(int=0), backup_eligible=False, backed_up=False
        )
    visitor.opens("account/security")
    visitor.opens(f"account/rename/{row.pk}")
    visitor.sends(name="x" * 61)
    assert visitor.at == f"account/rename/{row.pk}"
    visitor.sends(name="<b>Laptop</b>")
    assert visitor.at == "account/security"
    assert "Passkey · <b>Laptop</b>" in visitor.words
    assert "<b>Laptop</b>" not in visitor.text
    assert visitor.opens(f"account/rename/{uuid4()}").status_code == 404


def test_new_backup_codes_replace_the_old_ones(tenant: TestTenant) -> None:
    visitor, person = with_app(tenant)
    visitor.opens("account/security")
    visitor.opens("account/backup-codes")
    assert visitor.at == "step-up"
    visitor.opens("step-up?next=backup-codes&method=backup_code")
    visitor.sends(backup_code=person.backup_codes[0])
    assert visitor.at == "account/backup-codes"
    visitor.sends()
    new = re.findall(r"<code>([^<]+)</code>", visitor.text)
    assert len(new) == 10
    assert set(new).isdisjoint(person.backup_codes)


def test_devices_are_signed_out(tenant: TestTenant) -> None:
    user = tenant.register()
    other, visitor = signed_in(tenant, user), signed_in(tenant, user)
    visitor.opens("account/devices")
    (session,) = re.findall(r'name="session" value="([^"]+)"', visitor.text)
    visitor.sends(session=session)
    other.opens("account")
    assert other.at == "signin"
    assert visitor.opens("account").status_code == 200
    assert visitor.at == "account"


def test_devices_show_the_place_in_words(tenant: TestTenant, tmp_path: Path, settings: Settings) -> None:
    visitor = signed_in(tenant)
    assert visitor.address in visitor.opens("account/devices").content.decode()
    names = {"en": "Munich", "de": "München"}, {"en": "Germany", "de": "Deutschland"}
    write_city_file(tmp_path / "cities.mmdb", f"{visitor.address}/32", *names)
    settings.GEOIP_DATABASE = str(tmp_path / "cities.mmdb")
    visitor.opens("account/devices")
    assert f"Munich, Germany · {visitor.address}" in visitor.words
    visitor.opens("account/devices", Accept_Language="de")
    assert f"München, Deutschland · {visitor.address}" in visitor.words


def test_session_of_another_user_cannot_be_ended(tenant: TestTenant) -> None:
    victim, attacker = tenant.register(), tenant.register()
    other, _, visitor = signed_in(tenant, victim), signed_in(tenant, attacker), signed_in(tenant, attacker)
    with in_tenant(tenant.id):
        session = EndUserSession.objects.get(user_id=victim.id, ended_at=None)
    visitor.opens("account/devices")
    visitor.sends(session=str(session.pk))
    assert visitor.page.status_code == 404
    other.opens("account")
    assert other.at == "account"


def test_consent_is_asked_once_and_revoked(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    app = begin(visitor, client={}, scope="openid profile email")
    visitor.sends(email=user.email, password=PASSWORD)
    assert visitor.at == "consent"
    assert "See your e-mail address" in visitor.words
    assert code_of(visitor.sends(allow="1"))
    visitor.page = app.authorize(scope="openid profile email")
    assert code_of(visitor.page)
    visitor.opens("account/applications")
    assert "Shop" in visitor.words
    visitor.sends(client=app.client["client_id"])
    assert "No application has access" in visitor.words
    visitor.page = app.authorize(scope="openid profile email")
    visitor._follow()
    assert visitor.at == "consent"


def test_consent_shows_who_accepts_the_tokens(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    audiences = ["https://orders.example.com", "identity-api"]
    begin(visitor, client={"audiences": audiences}, scope="openid", resource=audiences)
    visitor.sends(email=user.email, password=PASSWORD)
    assert visitor.at == "consent"
    assert "Call this service for you" in visitor.words
    assert "Use https://orders.example.com" in visitor.words
    assert code_of(visitor.sends(allow="1"))


def test_connected_application_names_its_audiences(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    audiences = ["https://orders.example.com", "identity-api"]
    begin(visitor, client={"audiences": audiences}, scope="openid", resource=audiences)
    visitor.sends(email=user.email, password=PASSWORD)
    visitor.sends(allow="1")
    visitor.opens("account/applications")
    assert "Call this service for you" in visitor.words
    assert "Use https://orders.example.com" in visitor.words


def test_device_names_the_applications_it_has_signed_in(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    app = begin(visitor)
    code = code_of(visitor.sends(email=user.email, password=PASSWORD))
    assert app.exchange(code).status_code == 200
    elsewhere = signed_in(tenant, user)
    elsewhere.opens("account/devices")
    assert elsewhere.words.count("Signed in to Shop") == 1


def test_denied_consent_returns_an_error(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    begin(visitor, client={})
    visitor.sends(email=user.email, password=PASSWORD)
    response = visitor.sends(deny="1")
    assert "error=access_denied" in response.headers["Location"]


def test_select_account_offers_another_one(tenant: TestTenant) -> None:
    user, second = tenant.register(), tenant.register()
    visitor = signed_in(tenant, user)
    begin(visitor, prompt="select_account")
    assert visitor.at == "select-account"
    assert user.email in visitor.words
    query = visitor.query
    assert code_of(visitor.sends())
    begin(visitor, prompt="select_account")
    query = visitor.query
    visitor.opens(f"signin?another=1&{query}")
    assert code_of(visitor.sends(email=second.email, password=PASSWORD))


def test_data_is_a_file(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor = signed_in(tenant, user)
    response = visitor.opens("account/data")
    assert "attachment" in response.headers["Content-Disposition"]
    data: dict[str, Any] = response.json()
    assert data["profile"]["email"] == user.email
    assert [one["client_id"] for one in data["sessions"]] == [None]


def test_data_has_everything_about_the_user_alone(tenant: TestTenant) -> None:
    user, other = tenant.register(), tenant.register()
    visitor = signed_in(tenant, user)
    signed_in(tenant, other)
    app = begin(visitor, client={"audiences": ["https://orders.example.com"]}, scope="openid email")
    app.exchange(code_of(visitor.sends(allow="1")))
    path = f"/uflow/user/enduser/{tenant.id}/{user.id}"
    assert tenant.api.put(path, {"name": "By an admin"}).status_code == 200
    with in_tenant(tenant.id):
        own = EndUserSession.objects.get(user_id=user.id, client_id=None, ended_at=None)
        fields = {name: getattr(own, name) for name in ("user_id", "last_used_at", "expires_at", "auth_time")}
        ended = [EndUserSession(ended_at=own.created_at, end_reason="logout", **fields) for _ in range(120)]
        EndUserSession.objects.bulk_create(ended)
    response = visitor.opens("account/data")
    data: dict[str, Any] = response.json()
    assert len(data["sessions"]) == 122
    (connected,) = data["applications"]
    assert (connected["name"], connected["scopes"]) == ("Shop", ["email", "openid"])
    assert connected["audiences"] == ["https://orders.example.com"]
    assert connected["since"]
    assert data["remembered_browsers"] == []
    events = {event["action"]: event for event in data["audit_events"]}
    assert events["consent.granted"]["address"]
    # Who changed the user and from where is about that person.
    assert events["end_user.updated"]["actor_kind"] == "admin"
    assert not {"actor_id", "address"} & set(events["end_user.updated"])
    assert not data["audit_events_left_out"]
    assert str(other.id) not in response.content.decode()
    assert str(other.email) not in response.content.decode()


def test_account_is_deleted_where_the_tenant_allows_it(new_tenant: Any) -> None:
    tenant = new_tenant()
    tenant.register()
    user = tenant.register()
    visitor = signed_in(tenant, user)
    assert visitor.opens("account/delete").status_code == 404
    change_tenant(tenant.id, settings={"account_deletion": "on"})
    visitor.opens("account/delete")
    visitor.sends(password=PASSWORD)
    assert visitor.at == "account/delete"
    visitor.sends()
    assert "Your account is deleted." in visitor.words
    with in_tenant(tenant.id):
        assert not EndUser.objects.filter(pk=user.id).exists()


def test_sign_out_ends_the_session(tenant: TestTenant) -> None:
    visitor = signed_in(tenant)
    visitor.opens("signout")
    visitor.sends()
    assert visitor.at == "signin"
    assert "You are signed out." in visitor.words
    assert visitor.session is None


def test_rejected_address_uses_up_no_proof(tenant: TestTenant) -> None:
    taken, visitor = tenant.register(), signed_in(tenant)
    visitor.opens("account/email")
    visitor.sends(password=PASSWORD)
    visitor.sends(email=taken.email)
    assert visitor.page.status_code == 409
    visitor.sends(email=f"new-{taken.email}")
    assert visitor.at == "account"


def test_devices_are_shown_beside_many_applications(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor = signed_in(tenant, user)
    with in_tenant(tenant.id):
        own = EndUserSession.objects.get(user_id=user.id, ended_at=None)
        EndUserSession.objects.bulk_create(
            EndUserSession(
                user_id=own.user_id,
                parent_id=own.pk,
                client_id=tenant.client_id,
                last_used_at=own.last_used_at,
                expires_at=own.expires_at,
                auth_time=own.auth_time,
            )
            for _ in range(101)
        )
    visitor.opens("account/devices")
    assert visitor.text.count("This device") == 1
    sessions = visitor.opens("account/data").json()["sessions"]
    assert len(sessions) == 102
