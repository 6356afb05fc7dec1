"""What docs/quickstarts.md states, against the metadata of a tenant, also for libraries that the tests cannot run."""

import ast
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from openid.urls import below_issuer
from tests.openid.node_client import FOLDER, install_packages, node_programs
from tests.openid.test_discovery import document
from tests.quickstarts.page import BLOCKS, PAGE, block
from tests.world import TestTenant

ISSUER = "https://id.example.com/t/acme"


@pytest.fixture
def metadata(tenant: TestTenant) -> dict[str, Any]:
    """The metadata that the page's tenant would have."""
    found = document(tenant)
    return dict(json.loads(json.dumps(found).replace(found["issuer"], ISSUER)))


def node(*arguments: str | Path, code: str = "", **variables: str) -> str:
    """Run Node.js among the installed packages; return its output."""
    install_packages()
    command = [node_programs()[0], *arguments]
    ran = subprocess.run(
        command, input=code, env=variables, cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_addresses_below_the_issuer_exist(metadata: dict[str, Any]) -> None:
    stated = set(re.findall(rf"{re.escape(ISSUER)}(/[\w./-]+)", PAGE))
    stated |= set(re.findall(r"""(?:ISSUER"\] \+ |\bissuer \+ )"(/[\w./-]+)\"""", PAGE)) | set(
        re.findall(r"ISSUER\}(/[\w./-]+)", PAGE)
    )
    stated |= set(re.findall(r"^`(/[a-z]+)`", PAGE, re.MULTILINE))
    known = {value.removeprefix(ISSUER) for value in metadata.values() if isinstance(value, str)}
    assert {"/jwks", "/introspect", "/authorize", "/token", "/.well-known/openid-configuration"} <= stated
    assert stated - known == {"/.well-known/openid-configuration"}
    assert ".well-known/openid-configuration" in {str(path.pattern) for path in below_issuer}


def test_scopes_methods_and_algorithms_are_supported(metadata: dict[str, Any]) -> None:
    scopes = {scope for text in re.findall(r'scope"?[:=] ?"?([a-z_ ,]+)', PAGE) for scope in re.split("[ ,]", text)}
    assert scopes - {""} == {"openid", "profile", "email", "offline_access"}
    assert scopes - {""} <= set(metadata["scopes_supported"])
    assert set(re.findall(r"\b[A-Z]S[0-9]{3}\b", PAGE)) == {"ES256", "RS256"}
    assert set(metadata["id_token_signing_alg_values_supported"]) == {"ES256", "RS256"}
    assert set(re.findall(r"\bS[0-9]{3}\b", PAGE)) == set(metadata["code_challenge_methods_supported"])


@pytest.mark.needs("node")
@pytest.mark.parametrize("heading", ["Single-page application", "A command line or a television"])
def test_scripts_can_be_parsed(heading: str, tmp_path: Path) -> None:
    (tmp_path / "script.mjs").write_text(block(heading))
    node("--check", tmp_path / "script.mjs")


@pytest.mark.needs("node")
def test_openid_client_has_the_functions_that_are_called() -> None:
    called = sorted(set(re.findall(r"\bclient\.(\w+)\(", block("A command line or a television"))))
    names = f"for (const name of {json.dumps(called)}) if (!(name in client)) throw Error(name)"
    node("--input-type=module", "--eval", f"import * as client from 'openid-client'; {names}")
    assert called == ["None", "discovery", "initiateDeviceAuthorization", "pollDeviceAuthorizationGrant"]


def test_spring_application_is_set_up_for_this_issuer() -> None:
    lines = dict(line.split("=", 1) for line in block("Application", "properties").splitlines()[1:])
    names = {name.rpartition(".")[2]: value for name, value in lines.items()}
    assert set(names) == {"issuer-uri", "client-id", "client-secret", "scope"}
    assert names["issuer-uri"] == "${OIDC_ISSUER}"
    registrations = {name.split(".")[-2] for name in lines}
    assert len(registrations) == 1
    assert f"/login/oauth2/code/{registrations.pop()}`" in PAGE


def test_spring_resource_server_reads_these_keys(metadata: dict[str, Any]) -> None:
    java = block("Resource server", "java")
    (keys,) = re.findall(r'withJwkSetUri\(issuer \+ "([^"]+)"\)', java)
    assert ISSUER + keys == metadata["jwks_uri"]
    assert_balanced(java)


def test_envoy_verifies_with_these_keys(metadata: dict[str, Any]) -> None:
    settings = yaml.safe_load(block("Envoy"))
    assert settings["@type"].endswith(".jwt_authn.v3.JwtAuthentication")
    [(name, provider)] = settings["providers"].items()
    assert (provider["issuer"], provider["remote_jwks"]["http_uri"]["uri"]) == (
        metadata["issuer"],
        metadata["jwks_uri"],
    )
    assert [rule["requires"]["provider_name"] for rule in settings["rules"]] == [name]


def test_asp_net_core_gets_the_code_as_a_form(metadata: dict[str, Any]) -> None:
    code = block("ASP.NET Core")
    options = dict(re.findall(r'options\.(\w+) = (?:builder\.Configuration\[)?"([^"]+)"', code))
    assert options.pop("ResponseType") in metadata["response_types_supported"]
    assert options == {
        "DefaultScheme": "Cookies",
        "DefaultChallengeScheme": "OpenIdConnect",
        "Authority": "OIDC_ISSUER",
        "ClientId": "OIDC_CLIENT_ID",
        "ClientSecret": "OIDC_CLIENT_SECRET",
    }
    # It sends the secret in the body.
    assert {"form_post"} <= set(metadata["response_modes_supported"])
    assert {"client_secret_post"} <= set(metadata["token_endpoint_auth_methods_supported"])
    assert_balanced(code)


def test_laravel_reads_issuer_client_and_secret(metadata: dict[str, Any]) -> None:
    texts = [text for heading, _, text in BLOCKS if heading == "Laravel"]
    variables = dict(re.findall(r"'(\w+)' => env\('(\w+)'\)", texts[0]))
    assert variables.pop("redirect") == "APP_URL"
    assert set(variables.values()) == {"OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET"}
    assert variables["base_url"] == "OIDC_ISSUER"
    # PKCE, when the browser leaves and when it comes back.
    assert texts[2].count("->enablePKCE()") == 2
    for text in texts:
        assert_balanced(text)


def assert_balanced(code: str) -> None:
    """Require that every bracket is closed."""
    for opened, closed in ("()", "{}", "[]"):
        assert code.count(opened) == code.count(closed), opened


def test_python_can_be_parsed() -> None:
    for _, language, text in BLOCKS:
        if language == "python":
            ast.parse(text)
