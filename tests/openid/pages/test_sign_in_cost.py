"""What a hosted sign-in costs: requests and statements, from the authorization request to the tokens."""

from tests.openid.pages.visitor import Visitor, code_of
from tests.openid.relying_party import Application, register_application
from tests.world import PASSWORD, TestTenant, capture_statements


def test_sign_in_with_a_password_is_three_requests_with_few_statements(tenant: TestTenant) -> None:
    user, client_id = tenant.register(), register_application(tenant, first_party=True)

    def authorize(visitor: Visitor) -> Application:
        app = Application(tenant, client_id)
        app.browser.client, app.browser.address = visitor.client, visitor.address
        visitor.page = app.authorize(scope="openid profile email")
        return app

    # The process then knows whose the client and the slug are.
    authorize(Visitor(tenant))
    Visitor(tenant).opens("signin")
    visitor = Visitor(tenant)
    with capture_statements() as authorizing:
        app = authorize(visitor)
    with capture_statements() as signing_in:
        page = visitor.sends(email=user.email, password=PASSWORD, follow=False)
    with capture_statements() as exchanging:
        assert app.exchange(code_of(page)).status_code == 200
    assert [authorizing.default, signing_in.default, exchanging.default] == [[], [], []]
    assert [len(seen.tenant) for seen in (authorizing, signing_in, exchanging)] == [3, 5, 3]
