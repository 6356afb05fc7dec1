"""The applications in Java of docs/quickstarts.md sign a user in and verify access tokens."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from bench.java import java_home
from tests.examples.form_browser import FormBrowser
from tests.quickstarts.application import Application
from tests.quickstarts.page import block
from tests.world import User

LEAST_JAVA = 17
API = "https://api.example.com"
pytestmark = [pytest.mark.needs("mvn"), pytest.mark.nightly, pytest.mark.timeout(600)]


def use_java(application: Application) -> None:
    """Let Java trust the authority of the test beside those that it knows, which Maven needs."""
    home = java_home(LEAST_JAVA)
    store = application.folder / "authorities"
    shutil.copy(home / "lib" / "security" / "cacerts", store)
    store.chmod(0o600)
    authority = application.environment["SSL_CERT_FILE"]
    command = [home / "bin" / "keytool", "-importcert", "-noprompt", "-alias", "test", "-file", authority]
    subprocess.run([*command, "-keystore", store, "-storepass", "changeit"], check=True, capture_output=True)
    programs = os.pathsep.join([str(home / "bin"), application.environment["PATH"]])
    options = f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword=changeit"
    application.environment |= {"JAVA_HOME": str(home), "PATH": programs, "JDK_JAVA_OPTIONS": options}


def test_spring_application_signs_in(
    new_application: Callable[[str], Application], form_browser: FormBrowser, user: User
) -> None:
    application = new_application("/login/oauth2/code/identity")
    use_java(application)
    application.start("Application")
    form_browser.opens(f"{application.address}/")
    assert form_browser.signs_in(user.email, user.password) == f"Signed in as {user.email}"


def test_spring_resource_server_verifies_access_tokens(new_application: Callable[..., Application]) -> None:
    application = new_application("/callback", audiences=[API, "https://other.example.com"])
    use_java(application)
    pom = block("Application", "xml").partition("\n")[2].replace("oauth2-client", "oauth2-resource-server")
    (application.folder / "pom.xml").write_text(pom)
    application.environment["API_AUDIENCE"] = API
    application.start("Resource server")
    orders = f"{application.address}/orders"
    assert requests.get(orders, timeout=60).status_code == 401
    for audience, status in ((API, 200), ("https://other.example.com", 401)):
        response = requests.get(
            orders, headers={"Authorization": f"Bearer {token_for(application, audience)}"}, timeout=60
        )
        assert response.status_code == status, response.headers


def token_for(application: Application, audience: str) -> str:
    """Return an access token of the client itself for an API."""
    variables = application.environment
    response = requests.post(
        f"{variables['OIDC_ISSUER']}/token",
        data={"grant_type": "client_credentials", "resource": audience},
        auth=(variables["OIDC_CLIENT_ID"], variables["OIDC_CLIENT_SECRET"]),
        verify=str(Path(variables["SSL_CERT_FILE"])),
        timeout=60,
    )
    assert response.status_code == 200, response.text
    return str(response.json()["access_token"])
