"""oauth2-proxy protects an application. No Debian package has the program, so this runs where it is installed by hand."""

import json
from collections.abc import Callable

import pytest
from django.utils.timezone import now

from tenants.entering.context import in_tenant
from tests.examples.form_browser import FormBrowser
from tests.openid.libraries.libraries import PROXY, Sample
from tests.quickstarts.application import Application
from tests.world import TestTenant, User
from userflow.accounts.models import EndUser


@pytest.mark.needs("oauth2-proxy")
def test_oauth2_proxy_signs_in(
    prepare: Callable[[Sample], Application], form_browser: FormBrowser, tenant: TestTenant, user: User
) -> None:
    # It rejects addresses that are not verified.
    with in_tenant(tenant.id):
        EndUser.objects.filter(pk=user.id).update(email_verified_at=now())
    application = prepare(PROXY)
    variables = application.environment
    words = [
        "oauth2-proxy",
        "--provider=oidc",
        f"--oidc-issuer-url={variables['OIDC_ISSUER']}",
        f"--client-id={variables['OIDC_CLIENT_ID']}",
        f"--client-secret={variables['OIDC_CLIENT_SECRET']}",
        f"--redirect-url={application.address}{PROXY.callback}",
        "--code-challenge-method=S256",
        f"--cookie-secret={variables['SECRET_KEY'][:32]}",
        # This proxy is served without TLS, and protects a fixed response.
        "--cookie-secure=false",
        f"--http-address=127.0.0.1:{application.port}",
        "--email-domain=*",
        "--upstream=static://200",
    ]
    application.serve(words, application.port)
    form_browser.opens(f"{application.address}/oauth2/start")
    form_browser.signs_in(user.email, user.password)
    account = json.loads(form_browser.opens("/oauth2/userinfo"))
    assert (account["user"], account["email"]) == (str(user.id), user.email)
