"""The configuration to copy on the page of a client: the code runs as shown, against a running server."""

import json
import os
import re
import subprocess
import textwrap
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import RequestFactory

from console.platform.client_configuration import configuration_of
from tests.console.staff import new_tenant_admin
from tests.copies import change_client
from tests.openid.node_client import FOLDER, node_programs
from tests.openid.relying_party import CALLBACK
from tests.openid.test_foreign_clients import (
    approving_user_of,
    authenticated_client,
    base,
    browser_of,
    issuer_of,
    node,
    place,
)
from tests.world import TestTenant
from userflow.accounts.grant_types import AUTHORIZATION_CODE, CLIENT_CREDENTIALS, DEVICE_CODE
from userflow.accounts.models import Client

__all__ = ["base", "node", "place"]
SIGN_IN, OWN, DEVICE = "Sign users in with a browser", "Act for itself", "Sign users in on devices without a browser"
METHODS = ("none", "client_secret_basic", "client_secret_post", "private_key_jwt")
NODE = "openid-client (Node.js): "


def shown(stated: dict[str, Any], issuer: str = "https://id.example/t/acme") -> dict[str, str]:
    """The headings and texts on the page of the client."""
    return dict(configuration_of(Client.objects.get(pk=stated["client_id"]), issuer))


@pytest.mark.parametrize(
    ("method", "fields", "headings"),
    [
        ("none", {}, ["oidc-client-ts", NODE + SIGN_IN]),
        ("none", {"require_par": True}, [NODE + SIGN_IN]),
        ("none", {"redirect_uris": ["com.example.app:/back"]}, [NODE + SIGN_IN]),
        ("none", {"grant_types": [DEVICE_CODE], "redirect_uris": []}, [NODE + DEVICE]),
        ("private_key_jwt", {"scopes": []}, [NODE + SIGN_IN]),
        ("private_key_jwt", {"redirect_uris": []}, [NODE + OWN]),
        (
            "client_secret_basic",
            {"grant_types": [AUTHORIZATION_CODE]},
            ["Authlib (Python)", NODE + SIGN_IN, "Auth.js (Next.js)"],
        ),
        ("client_secret_basic", {"redirect_uris": []}, ["Authlib (Python): " + OWN, NODE + OWN]),
        ("client_secret_basic", {"grant_types": [CLIENT_CREDENTIALS]}, ["Authlib (Python): " + OWN, NODE + OWN]),
        ("client_secret_basic", {"redirect_uris": [], "dpop_bound_access_tokens": True}, [NODE + OWN]),
    ],
)
def test_page_shows_what_fits_the_client(
    tenant: TestTenant, method: str, fields: dict[str, Any], headings: list[str]
) -> None:
    client, _ = authenticated_client(tenant, method)
    change_client(client["client_id"], **fields)
    texts = shown(client)
    assert list(texts) == ["OpenID Connect", *headings]
    assert all(client["client_id"] in text for text in texts.values())
    assert ("<client secret>" in str(texts)) is method.startswith("client_secret")
    assert "app.example/callback" not in str(texts)


def test_single_page_sample_states_the_missing_origin(tenant: TestTenant) -> None:
    client, _ = authenticated_client(tenant, "none")
    assert "// Add https://app.example.com to the allowed origins" in shown(client)["oidc-client-ts"]
    fields = {"allowed_origins": ["https://app.example.com"], "dpop_bound_access_tokens": True}
    change_client(client["client_id"], **fields)
    text = shown(client)["oidc-client-ts"]
    assert ("allowed origins" in text, "IndexedDbDPoPStore" in text) == (False, True)


def test_samples_name_the_way_of_a_secret_in_the_body(tenant: TestTenant) -> None:
    client, _ = authenticated_client(tenant, "client_secret_post")
    texts = shown(client)
    texts.pop("OpenID Connect")
    assert [name for name, text in texts.items() if not re.search("client_secret_post|ClientSecretPost", text)] == []


def run(text: str, stated: dict[str, Any], browse: Callable[[str], str] | None = None) -> dict[str, Any]:
    """Run the code of openid-client as shown."""
    lines = re.sub(r"^// Redirect the browser.*$", "const back = await browse(address.href);", text, flags=re.M)
    lines = re.sub(r"^console\.log\(`Open.*$", "await browse(codes.verification_uri_complete);", lines, flags=re.M)
    around = """
        import {{ once }} from "node:events";
        const browse = async (address) => {{
          console.log(JSON.stringify({{ address }}));
          return String((await once(process.stdin, "data"))[0]).trim();
        }};
        {lines}
        console.log(JSON.stringify({{ tokens }}));
        process.exit(0);
    """
    script = textwrap.dedent(around).format(lines=lines)
    own = {"PATH": os.environ["PATH"], "OIDC_PRIVATE_KEY": json.dumps(stated.get("key"))}
    own |= {"OIDC_CLIENT_SECRET": stated["secret"]} if stated["secret"] else {}
    command = [node_programs()[0], "--input-type=module", "--eval", script]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=FOLDER, env=own, text=True, **pipes) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        for line in process.stdout:
            said = json.loads(line)
            if "tokens" in said:
                return dict(said["tokens"])
            assert browse
            process.stdin.write(browse(said["address"]) + "\n")
            process.stdin.flush()
        raise AssertionError(process.stderr.read())


@pytest.mark.needs("node")
@pytest.mark.parametrize(
    "strict", [{}, {"require_par": True, "dpop_bound_access_tokens": True}], ids=["bearer", "par-dpop"]
)
@pytest.mark.parametrize("method", METHODS)
def test_openid_client_sample_signs_a_user_in(
    base: str, tenant: TestTenant, node: None, method: str, strict: dict[str, bool]
) -> None:
    client, stated = authenticated_client(tenant, method, first_party=True, **strict)
    text = shown(client, issuer_of(base, tenant))[NODE + SIGN_IN]
    tokens = run(text, stated, browser_of(tenant, client))
    assert (tokens["scope"], tokens["token_type"]) == ("openid profile email", "dpop" if strict else "bearer")


@pytest.mark.needs("node")
@pytest.mark.parametrize("dpop", [False, True])
@pytest.mark.parametrize("method", METHODS[1:])
def test_openid_client_sample_gets_own_token(
    base: str, tenant: TestTenant, node: None, method: str, dpop: bool
) -> None:
    client, stated = authenticated_client(tenant, method, dpop_bound_access_tokens=dpop)
    tokens = run(shown(client, issuer_of(base, tenant))[NODE + OWN], stated)
    assert (tokens["scope"], tokens["token_type"]) == (
        "services:credentials services:read",
        "dpop" if dpop else "bearer",
    )


@pytest.mark.needs("node")
@pytest.mark.parametrize(("method", "dpop"), [("none", False), ("none", True), ("private_key_jwt", False)])
def test_openid_client_sample_signs_a_device_in(
    base: str, tenant: TestTenant, node: None, method: str, dpop: bool
) -> None:
    fields = {"grant_types": [DEVICE_CODE], "first_party": True, "dpop_bound_access_tokens": dpop}
    client, stated = authenticated_client(tenant, method, **fields)
    tokens = run(shown(client, issuer_of(base, tenant))[NODE + DEVICE], stated, approving_user_of(tenant))
    assert tokens["scope"] == "openid profile email"


SECRETS = pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])


@SECRETS
def test_authlib_sample_gets_own_token(
    base: str, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    client, stated = authenticated_client(tenant, method)
    monkeypatch.setenv("OIDC_CLIENT_SECRET", stated["secret"])
    names: dict[str, Any] = {}
    exec(shown(client, issuer_of(base, tenant))["Authlib (Python): " + OWN], names)
    with names["session"] as session:
        assert session.token["scope"] == "services:credentials services:read"


def signed_in_by_authlib(text: str, browse: Callable[[str], str]) -> dict[str, Any]:
    """The claims of a user who is signed in by the code as shown."""
    names: dict[str, Any] = {}
    exec(text, names)
    request = RequestFactory().get("/sign-in")
    request.session = {}  # type: ignore[assignment]  # what the library uses of one
    back = browse(names["sign_in"](request).headers["Location"])
    returned = RequestFactory().get("/callback", QUERY_STRING=urlsplit(back).query)
    returned.session = request.session
    return dict(names["callback"](returned))


@SECRETS
def test_authlib_sample_signs_a_user_in(
    base: str, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    client, stated = authenticated_client(tenant, method, first_party=True)
    monkeypatch.setenv("OIDC_CLIENT_SECRET", stated["secret"])
    text = shown(client, issuer_of(base, tenant))["Authlib (Python)"]
    claims = signed_in_by_authlib(text, browser_of(tenant, client))
    assert (claims["iss"], claims["aud"]) == (issuer_of(base, tenant), client["client_id"])


def added(tenant: TestTenant, kind: str, **fields: str) -> tuple[dict[str, str], dict[str, Any]]:
    """What the console prints after a client of this kind is added there with its defaults, and the client."""
    head = new_tenant_admin(tenant).sign_in()
    path = f"/admin/userflow/client/add/{kind}/"
    form = {field.name: field.value() for field in head.get(path).context["form"]}
    sent = {name: "on" if value is True else value for name, value in form.items() if value not in (None, False)}
    response = head.post(path, {**sent, "name": kind, "form_tenant_id": str(tenant.id), **fields})
    assert response.status_code == 200, response.text
    context = response.context
    client = {"client_id": str(context["client_id"]), "client_secret": context["secret"], "secret": context["secret"]}
    return dict(context["configuration"]), client


def values_in(printed: dict[str, str]) -> dict[str, str]:
    """The variables that the page prints."""
    return dict(line.split("=", 1) for line in printed["OpenID Connect"].splitlines())


def test_console_prints_what_works_at_this_instance(
    base: str, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed, client = added(tenant, "web", redirect_uris=CALLBACK, first_party="on")
    monkeypatch.setenv("OIDC_CLIENT_SECRET", values_in(printed)["OIDC_CLIENT_SECRET"])
    claims = signed_in_by_authlib(printed["Authlib (Python)"], browser_of(tenant, client))
    assert (claims["iss"], claims["aud"]) == (values_in(printed)["OIDC_ISSUER"], client["client_id"])
    printed, client = added(tenant, "machine", scopes="services:read")
    monkeypatch.setenv("OIDC_CLIENT_SECRET", values_in(printed)["OIDC_CLIENT_SECRET"])
    names: dict[str, Any] = {}
    exec(printed["Authlib (Python): " + OWN], names)
    with names["session"] as session:
        assert session.token["scope"] == "services:read"


@pytest.mark.needs("node")
@pytest.mark.parametrize("kind", ["single-page", "web", "native", "device"])
def test_console_prints_node_lines_that_work_at_this_instance(
    base: str, tenant: TestTenant, node: None, kind: str
) -> None:
    redirects = {} if kind == "device" else {"redirect_uris": CALLBACK}
    printed, client = added(tenant, kind, first_party="on", **redirects)
    if kind == "device":
        tokens = run(printed[NODE + DEVICE], client, approving_user_of(tenant))
    else:
        tokens = run(printed[NODE + SIGN_IN], client, browser_of(tenant, client))
    assert tokens["scope"] == "openid profile email"


@pytest.mark.parametrize(
    ("issuer", "insecure"), [("http://localhost:8000/t/a", True), ("https://id.example/t/a", False)]
)
def test_openid_client_sample_accepts_http_of_http_issuers_only(
    tenant: TestTenant, issuer: str, insecure: bool
) -> None:
    client, _ = authenticated_client(tenant, "none")
    assert ("allowInsecureRequests" in shown(client, issuer)[NODE + SIGN_IN]) is insecure
