"""The language switch of the hosted pages: it keeps the page and the journey, and the browser remembers the choice."""

from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import RequestFactory

from openid.browser import LANGUAGE, cookie_name
from openid.pages.languages import choose_language
from tenants.entering import lookup
from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.userflow.passwords.test_reset import mails_to
from tests.world import PASSWORD, TestTenant


@pytest.fixture
def visitor(tenant: TestTenant) -> Visitor:
    """A browser that prefers German."""
    opened = Visitor(tenant)
    opened.client.defaults["HTTP_ACCEPT_LANGUAGE"] = "de"
    return opened


def language_of(visitor: Visitor) -> str:
    """Return the language of the page."""
    return visitor.text.partition('<html lang="')[2].partition('"')[0]


def choose(visitor: Visitor, language: str) -> Any:
    """Follow the link of the page to another language."""
    before, found, _after = visitor.text.partition(f'" lang="{language}" hreflang="{language}" data-language>')
    assert found, visitor.text
    return visitor.opens(before.rpartition('href="')[2].replace("&amp;", "&"))


def test_choice_keeps_page_and_journey(tenant: TestTenant, visitor: Visitor) -> None:
    user = tenant.register()
    begin(visitor)
    query = visitor.query
    choose(visitor, "fr")
    assert (visitor.at, visitor.query, language_of(visitor)) == ("signin", query, "fr")
    assert code_of(visitor.sends(email=user.email, password=PASSWORD))


def test_choice_wins_over_application_user_and_browser(tenant: TestTenant, visitor: Visitor) -> None:
    user = tenant.register()
    assert tenant.as_user(user).put("/authmgr/profile", {"language": "es"}).status_code == 200
    visitor.signs_in(user)
    assert language_of(visitor) == "es"
    choose(visitor, "en")
    begin(visitor, ui_locales="fr", prompt="select_account")
    assert (visitor.at, language_of(visitor)) == ("select-account", "en")
    visitor.opens("signin?request=unknown")
    assert (visitor.page.status_code, language_of(visitor)) == (400, "en")


def test_newer_choice_in_the_profile_wins(tenant: TestTenant, visitor: Visitor) -> None:
    visitor.signs_in(tenant.register())
    choose(visitor, "en")
    visitor.sends("account", name="", language="es")
    assert language_of(visitor) == "es"


def test_choice_is_of_one_tenant_and_one_browser(
    tenant: TestTenant, other_tenant: TestTenant, visitor: Visitor
) -> None:
    visitor.opens("signin")
    choose(visitor, "es")
    visitor.tenant = other_tenant
    visitor.opens("signin")
    assert language_of(visitor) == "de"
    newcomer = Visitor(tenant)
    newcomer.opens("signin")
    assert language_of(newcomer) == "en"


def test_mail_is_in_the_chosen_language(tenant: TestTenant, visitor: Visitor) -> None:
    user = tenant.register()
    visitor.opens("forgot")
    choose(visitor, "fr")
    visitor.sends(email=user.email)
    assert "mot de passe" in mails_to(user.email)[-1].body


@pytest.mark.parametrize("language", ["pt", "", "de\x00", "<script>"])
def test_unknown_language_changes_nothing(tenant: TestTenant, visitor: Visitor, language: str) -> None:
    visitor.opens(f"signin?{urlencode({'chosen_language': language})}")
    assert (visitor.page.status_code, language_of(visitor)) == (200, "de")
    assert cookie_name(LANGUAGE, tenant.id) not in visitor.client.cookies


def test_head_and_forms_do_not_choose(tenant: TestTenant, visitor: Visitor) -> None:
    visitor.client.head(f"{visitor.root}/signin?chosen_language=fr", REMOTE_ADDR=visitor.address)
    visitor.client.post(f"{visitor.root}/signin?chosen_language=fr", REMOTE_ADDR=visitor.address)
    assert cookie_name(LANGUAGE, tenant.id) not in visitor.client.cookies


def test_response_to_a_form_has_no_switch(tenant: TestTenant, visitor: Visitor) -> None:
    """A link would open the form again instead."""
    visitor.opens("forgot")
    visitor.sends(email=tenant.register().email)
    assert visitor.page.status_code == 200
    assert "data-language" not in visitor.text


def test_choice_leads_to_no_other_host(tenant: TestTenant) -> None:
    request = RequestFactory().get("/page", {"chosen_language": "fr", "a": "1"})
    # Of a tenant's sign-in domain, where every path is one of its pages.
    request.path = request.path_info = "//evil.example.com/x"
    location = choose_language(request, lookup.find(tenant.id)).headers["Location"]
    assert location == "/%2Fevil.example.com/x?a=1"
