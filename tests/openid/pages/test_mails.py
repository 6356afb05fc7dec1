"""Pages that mails lead to, and registration: the user ends where the application asked."""

import json
import secrets
from collections.abc import Callable

from django.utils.timezone import now

from tenants.entering import lookup
from tenants.entering.context import in_tenant
from tests.copies import change_tenant
from tests.mfa.webauthn.passkeys import user_with_passkey
from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.userflow.invitations.test_invitations import invite
from tests.userflow.mailbox import code_in, mails_to, token_in
from tests.userflow.passwords.test_reset import mails_to as reset_mails_to
from tests.userflow.passwords.test_reset import token_in as reset_token_in
from tests.world import PASSWORD, TestTenant
from userflow.accounts.models import EndUser
from userflow.credentials.attempts import FREE_TRIES

NEW = "another horse 8 battery"


def new_address() -> str:
    return f"new-{secrets.token_hex(6)}@example.com"


# An application that users can register with.
OPEN = {"first_party": True, "self_registration": True}


def test_register_leads_to_application(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    begin(visitor, client=OPEN)
    assert "Create an account" in visitor.words
    visitor.opens(f"register?{visitor.query}")
    form = {"name": "Nora", "email": new_address()}
    visitor.sends(**form, password="short")
    assert visitor.page.status_code == 400
    assert 'id="id_password_error"' in visitor.text
    assert code_of(visitor.sends(**form, password=PASSWORD))


def test_register_of_taken_address_is_rejected(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    tenant.sign_in(user)
    visitor.opens("register")
    visitor.sends(email=user.email, password=PASSWORD)
    assert visitor.page.status_code == 409
    assert "already an account" in visitor.words


def test_register_does_not_tell_which_addresses_are_taken(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    user, free = tenant.register(), new_address()
    with in_tenant(tenant.id):
        EndUser.objects.filter(pk=user.id).update(email_verified_at=now())
    change_tenant(tenant.id, settings={"email_verification": "required"})
    lookup.forget()
    pages = []
    for email in (user.email, free):
        visitor = Visitor(tenant)
        visitor.opens("register")
        visitor.sends(email=email, password=PASSWORD)
        pages.append((visitor.at, visitor.page.status_code, visitor.words.replace(email, "")))
    assert pages[0] == pages[1]
    assert pages[0][:2] == ("verify-email", 200)
    assert mails_to(user.email, "already have an account")
    assert mails_to(free, "verify")


def test_sign_in_does_not_tell_a_registration_from_a_guess(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    user, free = tenant.register(), new_address()
    with in_tenant(tenant.id):
        EndUser.objects.filter(pk=user.id).update(email_verified_at=now())
    change_tenant(tenant.id, settings={"email_verification": "required"})
    lookup.forget()
    pages = []
    for email in (user.email, free):
        visitor = Visitor(tenant)
        visitor.opens("register")
        visitor.sends(email=email, password=NEW)
        visitor.opens("signin")
        shown = []
        # Until the lock, which must not tell either.
        for _ in range(FREE_TRIES + 2):
            status = visitor.sends(email=email, password=NEW).status_code
            shown.append((status, visitor.words.replace(email, "")))
        pages.append(shown)
    assert pages[0] == pages[1]
    assert pages[0][0][0] == 400
    assert "or the address is not verified yet" in pages[0][0][1]
    assert pages[0][-1][0] == 429
    # The owner learns by mail what is missing.
    assert len(mails_to(free, "verify")) > 1


def test_register_of_unverified_address_sends_the_code_again(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    visitor = Visitor(tenant)
    change_tenant(tenant.id, settings={"email_verification": "required"})
    lookup.forget()
    email = new_address()
    for _ in range(2):
        visitor.opens("register")
        visitor.sends(email=email, password=PASSWORD)
        assert visitor.at == "verify-email"
    assert len(mails_to(email, "verify")) == 2


def test_code_of_another_registration_does_not_verify_the_browsers(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    change_tenant(tenant.id, settings={"email_verification": "required"})
    owner, attacker, email = Visitor(tenant), Visitor(tenant), new_address()
    for visitor, password in ((owner, PASSWORD), (attacker, NEW)):
        visitor.opens("register")
        visitor.sends(email=email, password=password)
        assert visitor.at == "verify-email"
    own, foreign = mails_to(email, "verify")
    owner.sends(email=email, code=code_in(foreign))
    assert "invalid or has expired" in owner.words
    # The attacker's wrong codes do not end the owner's, and another mail repeats it.
    for _ in range(FREE_TRIES + 1):
        attacker.sends(email=email, code="000000" if code_in(own) != "000000" else "111111")
    owner.sends(email=email, again="1")
    assert code_in(mails_to(email, "verify")[-1]) == code_in(own)
    owner.sends(email=email, code=code_in(own))
    assert owner.at == "signin/password"
    attacker.opens("signin")
    assert attacker.sends(email=email, password=NEW).status_code == 400
    owner.sends(password=PASSWORD)
    assert owner.at == "account"


def test_application_without_self_registration_takes_no_new_users(tenant: TestTenant) -> None:
    """The default client is open, but does not stand for another one."""
    visitor, email = Visitor(tenant), new_address()
    begin(visitor)
    assert "Create an account" not in visitor.words
    query = visitor.query
    visitor.opens("register")
    visitor.sends(f"register?{query}", email=email, name="", password=PASSWORD)
    assert (visitor.page.status_code, visitor.session) == (400, None)
    assert "You cannot create an account yourself here." in visitor.words
    with in_tenant(tenant.id):
        assert not EndUser.objects.filter(email=email).exists()
    visitor.opens(f"register?{query}")
    assert visitor.page.status_code == 400
    assert f'href="{visitor.root}/signin"' in visitor.text


def test_closed_registration_shows_an_error(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    change_tenant(tenant.id, settings={"self_registration": False})
    visitor = Visitor(tenant)
    visitor.opens("signin")
    assert "Create an account" not in visitor.words
    visitor.opens("register")
    assert visitor.page.status_code == 400
    assert "Ask for an invitation" in visitor.words


def test_reset_leads_to_application(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    begin(visitor)
    visitor.opens(f"forgot?{visitor.query}")
    visitor.sends(email=user.email)
    assert "a mail with a link is on its way" in visitor.words
    (sent,) = reset_mails_to(user.email)
    assert f"/t/{tenant.slug}/reset#" in sent.body
    # The link of the mail does not carry the request.
    visitor.opens("reset")
    visitor.sends(token=reset_token_in(sent), password="short")
    assert visitor.page.status_code == 400
    visitor.sends(token=f"https://id.example.com/x#token={reset_token_in(sent)}", password=NEW)
    assert visitor.at == "signin/password"
    assert "Your new password is saved." in visitor.words
    assert code_of(visitor.sends(password=NEW))


def test_forgot_of_unknown_address_gets_the_same_page(tenant: TestTenant) -> None:
    visitor, email = Visitor(tenant), new_address()
    visitor.opens("forgot")
    visitor.sends(email=email)
    assert "a mail with a link is on its way" in visitor.words
    assert reset_mails_to(email) == []


def test_required_verification_by_code_leads_to_application(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    change_tenant(tenant.id, settings={"email_verification": "required"})
    visitor, email = Visitor(tenant), new_address()
    begin(visitor, client=OPEN)
    visitor.opens(f"register?{visitor.query}")
    visitor.sends(email=email, password=PASSWORD)
    assert visitor.at == "verify-email"
    assert visitor.session is None
    (sent,) = mails_to(email, "verify")
    assert f"/t/{tenant.slug}/verify-email#token={token_in(sent)}" in sent.body
    visitor.sends(email=email, code="000000" if code_in(sent) != "000000" else "111111")
    assert "invalid or has expired" in visitor.words
    visitor.sends(email=email, code=code_in(sent))
    assert visitor.at == "signin/password"
    assert code_of(visitor.sends(password=PASSWORD))


def test_link_verifies_address_of_signed_in_user(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    visitor.signs_in(user)
    (sent,) = mails_to(user.email, "verify")
    visitor.opens("verify-email")
    visitor.sends(token=token_in(sent))
    assert visitor.at == "account"
    assert "Your e-mail address is verified." in visitor.words


def test_link_of_another_user_leads_to_sign_out(tenant: TestTenant) -> None:
    visitor, user, other = Visitor(tenant), tenant.register(), tenant.register()
    visitor.signs_in(user)
    (sent,) = mails_to(other.email, "verify")
    visitor.opens("verify-email")
    visitor.sends(token=token_in(sent))
    assert f"You are signed in as {user.email}." in visitor.words
    assert f'href="/t/{tenant.slug}/signout"' in visitor.text
    visitor.opens("signout")
    visitor.sends()
    visitor.opens("verify-email")
    visitor.sends(token=token_in(sent))
    assert "Your e-mail address is verified." in visitor.words


def test_passkey_of_unverified_address_offers_a_mail(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    person, authenticator = user_with_passkey(tenant)
    tenant.sign_in(person)
    settings = tenant.api.patch(
        f"/uflow/admin/tenants/{tenant.id}/settings", {"settings": {"email_verification": "required"}}
    )
    assert settings.status_code == 200
    assert len(mails_to(person.email, "verify")) == 1
    visitor = Visitor(tenant)
    visitor.opens("signin")
    page = visitor.page
    options = visitor.sends("passkey-options", stage="sign_in").json()
    visitor.page = page
    visitor.sends(credential=json.dumps(authenticator.get(options)))
    assert visitor.at == "verify-email"
    visitor.sends(email=person.email, again="1")
    assert len(mails_to(person.email, "verify")) == 2


def test_invitation_creates_user_and_signs_in(tenant: TestTenant, other_tenant: TestTenant) -> None:
    invitation = invite(tenant, "end_user")
    (sent,) = mails_to(invitation["email"], "invited")
    assert f"/t/{tenant.slug}/invitation#token=" in sent.body
    elsewhere = Visitor(other_tenant)
    elsewhere.opens("invitation")
    elsewhere.sends(token=token_in(sent), password=PASSWORD)
    assert elsewhere.page.status_code == 400
    visitor = Visitor(tenant)
    visitor.opens("invitation")
    visitor.sends(token=token_in(sent), name="Ina", password=PASSWORD)
    assert visitor.at == "account"
    assert "Ina" in visitor.text


def test_tenants_own_page_stays_in_mails(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    own = "https://shop.example.com/verify"
    change_tenant(tenant.id, settings={"email_verification_url": own})
    user = tenant.register()
    (sent,) = mails_to(user.email, "verify")
    assert f"{own}#token=" in sent.body


def test_reset_of_another_user_leaves_signed_in_user(tenant: TestTenant) -> None:
    visitor, user, other = Visitor(tenant), tenant.register(), tenant.register()
    visitor.signs_in(user)
    cookie = visitor.session
    visitor.opens("forgot")
    visitor.sends(email=other.email)
    (sent,) = reset_mails_to(other.email)
    visitor.opens("reset")
    visitor.sends(token=reset_token_in(sent), password=NEW)
    assert visitor.at == "signin/password"
    assert visitor.session == cookie
    visitor.opens("account")
    assert visitor.at == "account"


def test_reset_of_own_password_deletes_cookie(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    visitor.signs_in(user)
    visitor.opens("forgot")
    visitor.sends(email=user.email)
    (sent,) = reset_mails_to(user.email)
    visitor.opens("reset")
    visitor.sends(token=reset_token_in(sent), password=NEW)
    assert visitor.session is None
