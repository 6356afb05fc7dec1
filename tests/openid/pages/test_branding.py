"""The tenant's branding on its hosted pages."""

from collections.abc import Callable
from typing import Any

import pytest

from tenants.entering.context import in_tenant
from tenants.models import Tenant
from tests.copies import change_mapping
from tests.openid.pages.visitor import Visitor, begin
from tests.userflow.tenants.test_branding import EVERYTHING, encoded, path_of, picture
from tests.world import TestTenant, capture_statements
from userflow.branding.models import Branding


@pytest.fixture
def branded(new_tenant: Callable[[], TestTenant]) -> TestTenant:
    """Return a tenant with everything set."""
    tenant = new_tenant()
    assert tenant.api.patch(path_of(tenant), {**EVERYTHING, "logo": encoded(picture())}).status_code == 200
    return tenant


def change(tenant: TestTenant, **changes: Any) -> None:
    assert tenant.api.patch(path_of(tenant), changes).status_code == 200


def test_sign_in_page_shows_the_branding(branded: TestTenant) -> None:
    visitor = Visitor(branded)
    visitor.opens("signin", Accept_Language="de")
    assert "Willkommen" in visitor.words
    assert "· Acme Books</title>" in visitor.text
    assert f'<img class="logo" src="/t/{branded.slug}/logo?v=' in visitor.text
    for kind in ("terms", "privacy", "help"):
        assert f'href="https://acme.example/{kind}"' in visitor.text
    assert "@media (prefers-color-scheme: light) { :root { --accent:#7a1fa2;--on-accent:#ffffff;" in visitor.text
    assert "@media (prefers-color-scheme: dark) { :root { --accent:#E0B0FF;--on-accent:#0f1216;" in visitor.text
    assert "unsafe" not in visitor.page.headers["Content-Security-Policy"]


def test_page_without_own_text_has_the_platforms(branded: TestTenant) -> None:
    visitor = Visitor(branded)
    visitor.opens("signin", Accept_Language="fr")
    assert "Se connecter" in visitor.words
    assert "Willkommen" not in visitor.words


def test_page_of_unbranded_tenant_has_no_style_element(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    visitor.opens("signin")
    assert "<style" not in visitor.text
    assert "<footer" not in visitor.text
    assert tenant.name in visitor.words


def test_markup_in_texts_is_shown_as_text(branded: TestTenant) -> None:
    markup = "<script>alert(1)</script>{{ form_token }}"
    change(branded, name=markup, texts={"en": {"signin_heading": markup, "signin_intro": f"{markup}\n\nTwo"}})
    visitor = Visitor(branded)
    visitor.opens("signin")
    assert "<script>alert" not in visitor.text
    assert visitor.words.count("alert(1)") == 4
    assert "{{ form_token }}" in visitor.words


def test_stored_color_that_is_none_is_not_shown(branded: TestTenant) -> None:
    with in_tenant(branded.id):
        Branding.objects.update(color_light="}b{x:y")
    visitor = Visitor(branded)
    visitor.opens("signin")
    assert "}b{" not in visitor.text


def test_error_and_account_pages_show_the_branding(branded: TestTenant) -> None:
    visitor, user = Visitor(branded), branded.register()
    visitor.opens("signin?request=unknown")
    assert visitor.page.status_code == 400
    assert "Acme Books" in visitor.words
    visitor.signs_in(user)
    visitor.opens("account")
    assert "Acme Books" in visitor.words
    visitor.opens("/t/no-such-tenant/signin")
    assert "Acme" not in visitor.words


def test_branding_costs_one_statement_of_the_tenant(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    begin(visitor)
    path = f"{visitor.at}?{visitor.query}"
    with capture_statements() as captured:
        visitor.opens(path)
    assert visitor.page.status_code == 200
    assert len([one for one in captured.tenant if "userflow_branding" in one]) == 1
    with capture_statements() as captured:
        visitor.client.get(f"{visitor.root}/authorize?client_id=x")
    assert len([one for one in captured.tenant if "userflow_branding" in one]) <= 1


def test_page_of_suspended_tenant_has_the_defaults(branded: TestTenant) -> None:
    change_mapping(branded.id, status="suspended")
    visitor = Visitor(branded)
    visitor.opens("signin")
    assert visitor.page.status_code == 403
    assert Tenant.objects.get(pk=branded.id).name in visitor.words
    assert "Acme" not in visitor.words
