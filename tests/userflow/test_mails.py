"""Mails to end users: their language, the tenant's branding, text and HTML."""

import os
import re
from collections.abc import Callable
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core import mail as django_mail
from django.db import connections
from django.utils.timezone import now

from mfa.notices import mail_enrollment_pass, mail_factor_change
from tenants.entering.context import current_tenant, in_tenant, tenant_atomic
from tenants.entering.target import TENANT_ALIAS
from tenants.states import Purpose
from tests.openid.pages.visitor import Visitor, begin
from tests.userflow.invitations.test_invitations import invite
from tests.userflow.mailbox import code_in, mails_to
from tests.userflow.tenants.test_branding import EVERYTHING, path_of
from tests.world import PASSWORD, Api, TestTenant
from userflow.accounts.models import EndUser
from userflow.accounts.realms import END_USERS
from userflow.branding.models import Branding
from userflow.credentials.email_verification import tell_of_ended_use
from userflow.email.undo import offer_undo
from userflow.endusers.taken import tell_owner
from userflow.mail.queue import queue_mail
from userflow.mail.rendering import PLATFORM, render
from userflow.mail_delivery import background

RESET = {
    "en": "set a new password",
    "de": "Legen Sie ein neues Passwort fest",
    "fr": "définissez un nouveau mot de passe",
    "es": "establezca una contraseña nueva",
}


ADDRESS = settings.DEFAULT_FROM_EMAIL.partition("<")[2].rstrip(">")


def sender_of(sent: Any) -> tuple[str, str]:
    """Return name and address of the sender, as a mail program reads them."""
    header: Any = message_from_bytes(sent.message().as_bytes(), policy=policy.default)["From"]
    (address,) = header.addresses
    return address.display_name, address.addr_spec


def html_of(sent: Any) -> str:
    ((content, kind),) = sent.alternatives
    assert kind == "text/html"
    return str(content)


def forgot(tenant: TestTenant, email: str, **headers: str) -> Any:
    """Request a new password over the API; return the mail."""
    body = {"email": email, "tenant_id": str(tenant.id)}
    assert Api().post("/uflow/auth/enduser/password/forgot", body, headers=headers).status_code == 200
    return reset_mail(email)


def reset_mail(email: str) -> Any:
    """Return the mail with the link. The one that verifies the address may be sent after it."""
    (sent,) = (sent for sent in mails_to(email) if "/reset#token=" in sent.body)
    return sent


def brand(tenant: TestTenant, **changes: Any) -> None:
    assert tenant.api.patch(path_of(tenant), changes).status_code == 200


@pytest.fixture
def branded(new_tenant: Callable[[], TestTenant]) -> TestTenant:
    """Return a tenant with everything set; its language is German."""
    tenant = new_tenant()
    brand(tenant, **EVERYTHING)
    return tenant


@pytest.mark.parametrize("language", list(RESET))
def test_mail_is_in_the_language_of_the_request(tenant: TestTenant, language: str) -> None:
    person = tenant.register()
    sent = forgot(tenant, person.email, Accept_Language=f"pt, {language}-XX;q=0.9, it;q=0.8")
    assert RESET[language] in sent.subject
    assert f'<html lang="{language}">' in html_of(sent)


def test_language_of_tenant_comes_before_the_request(branded: TestTenant) -> None:
    person = branded.register()
    assert RESET["de"] in forgot(branded, person.email, Accept_Language="fr").subject


@pytest.mark.parametrize("language", ["", "de"])
def test_mail_of_admins_request_ignores_its_language(language: str, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    if language:
        brand(tenant, language=language)
    person = tenant.register()
    path = f"/uflow/user/enduser/{tenant.id}/{person.id}"
    assert tenant.api.put(path, {"email": f"new-{person.email}"}, headers={"Accept-Language": "fr"}).status_code == 200
    background.settle(60)
    told = [sent for sent in django_mail.outbox if sent.to == [person.email]][-1]
    assert f'<html lang="{language or "en"}">' in html_of(told)


def test_language_of_page_comes_before_the_tenant(branded: TestTenant) -> None:
    person, visitor = branded.register(), Visitor(branded)
    begin(visitor, ui_locales="es")
    visitor.opens(f"forgot?{visitor.query}")
    visitor.sends(email=person.email)
    assert RESET["es"] in reset_mail(person.email).subject


def test_language_of_user_comes_before_page_tenant_and_request(branded: TestTenant) -> None:
    person = branded.register()
    assert branded.api.put(f"/uflow/user/enduser/{branded.id}/{person.id}", {"language": "fr"}).status_code == 200
    assert RESET["fr"] in forgot(branded, person.email, Accept_Language="es").subject
    visitor = Visitor(branded)
    visitor.client.defaults["HTTP_ACCEPT_LANGUAGE"] = "es"
    visitor.opens("forgot")
    django_mail.outbox.clear()
    visitor.sends(email=person.email)
    assert RESET["fr"] in reset_mail(person.email).subject
    begin(visitor, ui_locales="es")
    visitor.opens(f"forgot?{visitor.query}")
    django_mail.outbox.clear()
    visitor.sends(email=person.email)
    assert RESET["es"] in reset_mail(person.email).subject


def languages_of_mails() -> dict[str, list[str]]:
    """Return the language of each mail that was sent, by subject."""
    assert background.settle(60)
    return {sent.subject: re.findall(r'<html lang="(\w+)">', html_of(sent)) for sent in django_mail.outbox}


def test_mails_about_address_and_password_are_in_the_users_language(branded: TestTenant) -> None:
    person = branded.register()
    api = branded.as_user(person)
    assert api.put("/authmgr/profile", {"language": "fr"}).status_code == 200
    assert background.settle(60)
    django_mail.outbox.clear()
    proof = {"current_password": PASSWORD}
    assert api.put("/authmgr/profile", {"email": f"new-{person.email}", **proof}).status_code == 200
    change = {"new_password": "another horse 8 battery", "current_password": PASSWORD}
    assert api.post("/authmgr/profile/password", change).status_code == 200
    assert list(languages_of_mails().values()) == [["fr"]] * 3


def test_notices_are_in_the_users_language(branded: TestTenant) -> None:
    person = branded.register()
    with in_tenant(branded.id):
        EndUser.objects.filter(pk=person.id).update(language="fr", email_verified_at=now())
    assert background.settle(60)
    django_mail.outbox.clear()
    with in_tenant(branded.id), tenant_atomic():
        user = EndUser.objects.get(pk=person.id)
        mail_factor_change(END_USERS, user, change="removed", kind="totp")
        mail_enrollment_pass(END_USERS, user, token="", expires_at=now())
        tell_of_ended_use(user)
        offer_undo(END_USERS, user, current_tenant(), pending=True)
        tell_owner(user, current_tenant())
    assert list(languages_of_mails().values()) == [["fr"]] * 5


def test_mail_has_the_name_sender_and_footer_of_tenant(branded: TestTenant) -> None:
    sent = forgot(branded, branded.register().email)
    assert sent.subject == "Acme Books: Legen Sie ein neues Passwort fest"
    assert sender_of(sent) == ("Acme “Books” Team", ADDRESS)
    assert sent.body.endswith("\n\n-- \nAcme GmbH\nMusterweg 1\n")
    html = html_of(sent)
    assert "Acme GmbH<br>Musterweg 1" in html
    assert "background:#7a1fa2" in html


def test_html_says_what_the_text_says(branded: TestTenant) -> None:
    brand(branded, language="en")
    sent = forgot(branded, branded.register().email)
    html = html_of(sent)
    (link,) = re.findall(r"^https?://\S+$", sent.body, re.MULTILINE)
    assert f'<a class="button" href="{link.replace("&", "&amp;")}"' in html
    assert ">Set a new password</a>" in html
    words = " ".join(re.sub(r"<[^>]+>", " ", html.partition("<body")[2]).split())
    for sentence in ("If that was you, open this link within", "Each works once. If it was not you"):
        assert sentence in words
        assert sentence in sent.body
    for outside in ("<img", "<script", "<link", "url(", "@import", "<table"):
        assert outside not in html


def test_markup_in_names_is_shown_as_text(branded: TestTenant) -> None:
    markup = "<b>Acme</b> & {{ token }}"
    brand(branded, name=markup, sender_name='"Evil" <a.example>, b', texts={"de": {"mail_footer": markup}})
    sent = forgot(branded, branded.register().email)
    assert markup in sent.subject
    assert "<b>" not in html_of(sent)
    assert html_of(sent).count("&lt;b&gt;Acme&lt;/b&gt; &amp; {{ token }}") == 5
    assert sender_of(sent) == ('"Evil" <a.example>, b', ADDRESS)


def test_sender_is_never_like_another_address(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    brand(tenant, name="Acme")
    with in_tenant(tenant.id):
        # As a row from before the rule.
        Branding.objects.update(sender_name="billing@bank.example")
    assert sender_of(forgot(tenant, tenant.register().email)) == (PLATFORM, ADDRESS)


def test_code_of_mail_stands_alone(tenant: TestTenant) -> None:
    person = tenant.register()
    assert (
        Api().post("/uflow/user/email/resend", {"tenant_id": str(tenant.id), "email": person.email}).status_code == 200
    )
    sent = mails_to(person.email)[-1]
    assert sent.subject.endswith("verify your e-mail address")
    assert f"\n\n{code_in(sent)}\n\n" in sent.body
    assert f">{code_in(sent)}</p>" in html_of(sent)
    assert "Verify e-mail address</a>" in html_of(sent)


def test_mails_to_admins_are_in_english_without_branding(branded: TestTenant) -> None:
    sent = invite(branded, "admin", roles=["auditor"])
    (told,) = mails_to(sent["email"])
    assert told.subject.startswith("You are invited to")
    assert told.from_email == settings.DEFAULT_FROM_EMAIL
    assert '<html lang="en">' in html_of(told)
    guest = invite(branded, "end_user")
    assert mails_to(guest["email"])[-1].subject == "Sie sind zu Acme Books eingeladen"


def test_mail_of_suspended_tenant_is_sent(branded: TestTenant, operator: Api) -> None:
    operator.patch(f"/uflow/admin/tenants/{branded.id}", {"status": "suspended"})
    with in_tenant(branded.id, Purpose.SIGN_OUT):
        queue_mail("email_verified", to="someone@example.com", facts={"issuer": "Acme"}, after=TENANT_ALIAS)
    (sent,) = mails_to("someone@example.com")
    assert sent.subject == "Acme Books: Ihre Adresse ist bestätigt"


def test_forked_process_sends_with_threads_of_its_own(tmp_path: Path, settings: Any) -> None:
    queue_mail("routes_changed", to="before@example.com", facts={}, after="default")
    assert background.settle()
    settings.EMAIL_BACKEND, settings.EMAIL_FILE_PATH = "identity_platform.mail_files.EmailBackend", tmp_path
    # Closed in the child they would end for the parent: both have the same sockets.
    connections.close_all()
    child = os.fork()
    if child == 0:
        queue_mail("routes_changed", to="after@example.com", facts={}, after="default")
        os._exit(0 if background.settle() else 1)
    assert os.waitpid(child, 0)[1] == 0
    (written,) = tmp_path.iterdir()
    assert b"To: after@example.com" in written.read_bytes()


@pytest.mark.parametrize(
    ("sender", "domain"),
    [
        ("Identity <no-reply@id.example.org>", "id.example.org"),
        ("no-reply@m\u00fcnchen.example", "xn--mnchen-3ya.example"),
        ("no-reply@mail_host", "mail_host"),
    ],
)
def test_message_id_has_the_domain_of_the_sender(settings: Any, sender: str, domain: str) -> None:
    settings.DEFAULT_FROM_EMAIL = sender
    facts = {"issuer": "Acme", "link": "https://id.example.org/reset#token=t", "token": "t"}
    first, second = (
        render("password_reset", to="ann@example.com", facts=facts, branding=None, language="").message()["Message-ID"]
        for _ in range(2)
    )
    assert re.fullmatch(rf"<[^@>]+@{re.escape(domain)}>", first)
    assert first != second
