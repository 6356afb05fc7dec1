"""The libraries and programs that tests run against a tenant's provider, as the table in docs/libraries.md lists them."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
SIGN_IN, REFRESH, SIGN_OUT, VERIFICATION = "sign-in", "refresh", "sign-out", "verification"
HERE = "tests/openid/libraries"
NODE_LOCK, PYTHON_LOCK = f"{HERE}/node/package-lock.json", "requirements/libraries.txt"
QUICKSTARTS = "docs/quickstarts.md"
QUICKSTARTS_IN_NODE, QUICKSTARTS_IN_PYTHON = "tests/quickstarts/node/package-lock.json", "requirements/quickstarts.txt"
LANGUAGES = {".mjs": "JavaScript", ".py": "Python", ".rb": "Ruby", ".go": "Go"}


@dataclass(frozen=True)
class Library:
    """A row of the table.

    `source` is the file that uses the library, `lock` the one that pins its version; without one it is `unpinned`.
    `lines` and `client` are the configuration beyond issuer, id, secret, redirect URI and scopes: `lines` that of the
    application, in `source`, and `client` that of the client. A library that `reads_metadata` needs no addresses.
    """

    name: str
    source: str
    tested: tuple[str, ...]
    lines: tuple[str, ...] = ()
    lock: str | None = None
    client: dict[str, Any] = field(default_factory=dict)
    reads_metadata: bool = True
    test: str = f"{HERE}/test_libraries.py::test_library_signs_in"
    language: str = ""
    unpinned: str = "Debian's"

    @property
    def version(self) -> str:
        """Return the version that the lock pins."""
        if self.lock is None:
            return self.unpinned
        text = (ROOT / self.lock).read_text()
        if self.lock.endswith(".json"):
            return str(json.loads(text)["packages"][f"node_modules/{self.name}"]["version"])
        separator = " v" if self.lock.endswith(".mod") else "=="
        match = re.search(rf"^\W*(?:require )?{re.escape(self.name)}{separator}(\S+)", text, re.MULTILINE)
        assert match, f"{self.lock} does not pin {self.name}."
        return match[1]

    @property
    def row(self) -> str:
        """Return the row of the table."""
        lines = [f"`{line}`" for line in self.lines]
        lines += [f"client: `{name}: {json.dumps(value)}`" for name, value in self.client.items()]
        lines += [] if self.reads_metadata else ["addresses of the endpoints"]
        language = self.language or LANGUAGES[Path(self.source).suffix]
        cells = (
            self.name.removesuffix("-5"),
            self.version,
            language,
            ", ".join(self.tested),
            ", ".join(lines) or "none",
        )
        return f"| {' | '.join(cells)} | `{self.test.partition('::')[0]}` |"


@dataclass(frozen=True)
class Sample(Library):
    """A library with an application in this folder: `login` is where a sign-in begins, `callback` where it ends."""

    callback: str = "/callback"
    login: str = "/login"
    has_login_form: bool = False


def in_node(name: str, script: str, *tested: str, **fields: Any) -> Sample:
    return Sample(name, f"{HERE}/node/{script}.mjs", tested, lock=NODE_LOCK, **fields)


def in_python(name: str, script: str, *tested: str, **fields: Any) -> Sample:
    return Sample(name, f"{HERE}/python/{script}.py", tested, lock=PYTHON_LOCK, **fields)


# Libraries that cannot send PKCE. They send and compare a nonce.
WITHOUT_PKCE = {"require_pkce": False}
METHOD_IN_NODE = 'code_challenge_method: "S256"'

NODE_SAMPLES = (
    in_node(
        *("passport-openidconnect", "passport_openidconnect", SIGN_IN),
        lines=("nonce: true",),
        client=WITHOUT_PKCE,
        reads_metadata=False,
    ),
    in_node("passport-oauth2", "passport_oauth2", SIGN_IN, lines=("pkce: true, state: true",), reads_metadata=False),
    in_node("openid-client", "openid_client_passport", SIGN_IN, language="JavaScript (Passport)"),
    in_node("openid-client-5", "openid_client_5", SIGN_IN, REFRESH, SIGN_OUT, lines=(METHOD_IN_NODE,)),
    in_node(
        *("@auth/express", "auth_express", SIGN_IN),
        callback="/auth/callback/identity",
        login="/auth/signin",
        has_login_form=True,
    ),
    in_node(
        *("next-auth", "next_auth_4", SIGN_IN),
        lines=("idToken: true", 'checks: ["pkce", "state"]'),
        callback="/api/auth/callback/identity",
        login="/api/auth/signin",
        has_login_form=True,
    ),
    in_node("@fastify/oauth2", "fastify_oauth2", SIGN_IN, REFRESH),
    in_node("better-auth", "better_auth", SIGN_IN, REFRESH, callback="/api/auth/callback/identity"),
    in_node(
        *("grant", "grant", SIGN_IN),
        lines=("state: true, nonce: true, pkce: true",),
        callback="/connect/identity/callback",
        login="/connect/identity",
        reads_metadata=False,
    ),
    in_node("simple-oauth2", "simple_oauth2", SIGN_IN, REFRESH, lines=(METHOD_IN_NODE,), reads_metadata=False),
    in_node("arctic", "arctic", SIGN_IN, REFRESH, lines=("createAuthorizationURLWithPKCE",), reads_metadata=False),
    in_node(
        *("@azure/msal-node", "msal_node", SIGN_IN, REFRESH),
        lines=("knownAuthorities", 'protocolMode: "OIDC"', 'codeChallengeMethod: "S256"'),
    ),
)
PYTHON_SAMPLES = (
    in_python("flask-oidc", "use_flask_oidc", SIGN_IN, client=WITHOUT_PKCE, callback="/authorize"),
    in_python("flask-pyoidc", "use_flask_pyoidc", SIGN_IN, SIGN_OUT, client=WITHOUT_PKCE),
    in_python(
        *("social-auth-app-django", "use_social_auth", SIGN_IN, REFRESH),
        lines=("SOCIAL_AUTH_OIDC_USE_PKCE=True",),
        callback="/complete/oidc/",
        has_login_form=True,
    ),
    in_python(
        *("requests-oauthlib", "use_requests_oauthlib", SIGN_IN, REFRESH), lines=('pkce="S256"',), reads_metadata=False
    ),
    in_python("httpx-oauth", "use_httpx_oauth", SIGN_IN, REFRESH, lines=('code_challenge_method="S256"',)),
    in_python("idpyoidc", "use_idpyoidc", SIGN_IN, REFRESH, lines=('"pkce"', '"client_authn_methods"')),
    in_python("msal", "use_msal", SIGN_IN, REFRESH),
)
RUBY_SAMPLE = Sample(
    *("gitlab-omniauth-openid-connect", f"{HERE}/ruby/use_omniauth.rb", (SIGN_IN,)),
    lines=("discovery: true",),
    client=WITHOUT_PKCE,
    callback="/auth/openid_connect/callback",
    has_login_form=True,
)
GO_SAMPLE = Sample(
    *("github.com/zitadel/oidc/v3", f"{HERE}/go/main.go", (SIGN_IN, REFRESH, SIGN_OUT)),
    lines=("rp.WithPKCE(cookies)",),
    lock=f"{HERE}/go/go.mod",
)
PROXY = Sample(
    *("oauth2-proxy", f"{HERE}/test_oauth2_proxy.py", (SIGN_IN,)),
    lines=("--code-challenge-method=S256",),
    callback="/oauth2/callback",
    test=f"{HERE}/test_oauth2_proxy.py::test_oauth2_proxy_signs_in",
    language="any (a proxy)",
    unpinned="7.15",
)
VERIFIED = f"{HERE}/test_libraries.py::test_library_verifies_access_tokens"
NODE_VERIFIERS = (
    in_node("express-oauth2-jwt-bearer", "verify", VERIFICATION, test=VERIFIED),
    in_node("express-jwt", "verify", VERIFICATION, lines=('algorithms: ["ES256"]',), test=VERIFIED),
    in_node("aws-jwt-verify", "verify", VERIFICATION, test=VERIFIED),
)
PYTHON_VERIFIER = in_python(
    *("python-jose", "verify_python_jose", VERIFICATION), lines=('algorithms=["ES256"]',), test=VERIFIED
)


def in_quickstarts(name: str, test: str, lock: str | None, *tested: str, **fields: Any) -> Library:
    return Library(name, QUICKSTARTS, tested, lock=lock, test=f"tests/quickstarts/{test}", **fields)


FOREIGN_CLIENTS = "tests/openid/test_foreign_clients.py"
STOCK_VERIFIERS = "tests/openid/test_stock_verifiers.py"
TESTED_ELSEWHERE = (
    in_quickstarts(
        *("authlib", "test_python.py::test_authlib_signs_in", QUICKSTARTS_IN_PYTHON, SIGN_IN),
        lines=('"code_challenge_method": "S256"',),
        language="Python (Flask, FastAPI)",
    ),
    in_quickstarts(
        *("mozilla-django-oidc", "test_python.py::test_mozilla_django_oidc_signs_in", QUICKSTARTS_IN_PYTHON, SIGN_IN),
        lines=('OIDC_RP_SIGN_ALGO, OIDC_USE_PKCE = "RS256", True',),
        reads_metadata=False,
        language="Python",
    ),
    in_quickstarts(
        *("django-allauth", "test_python.py::test_allauth_signs_in", QUICKSTARTS_IN_PYTHON, SIGN_IN),
        lines=('"OAUTH_PKCE_ENABLED": True',),
        language="Python",
    ),
    in_quickstarts(
        *("next-auth", "test_node.py::test_auth_js_signs_in", QUICKSTARTS_IN_NODE, SIGN_IN), language="JavaScript"
    ),
    in_quickstarts(
        *("express-openid-connect", "test_node.py::test_express_openid_connect_signs_in_and_out", QUICKSTARTS_IN_NODE),
        *(SIGN_IN, SIGN_OUT),
        lines=('response_type: "code"',),
        language="JavaScript",
    ),
    in_quickstarts(
        *("react-oidc-context", "test_react.py::test_react_oidc_context_signs_in_and_out", QUICKSTARTS_IN_NODE),
        *(SIGN_IN, SIGN_OUT),
        language="JavaScript",
    ),
    in_quickstarts(
        *("github.com/coreos/go-oidc/v3", "test_go.py::test_go_oidc_signs_in", "tests/quickstarts/go/go.mod", SIGN_IN),
        lines=("oauth2.S256ChallengeOption(pkce)",),
        language="Go",
    ),
    in_quickstarts(
        *("mod_auth_openidc", "test_web_servers.py::test_apache_signs_in", None, SIGN_IN),
        lines=("OIDCPKCEMethod S256",),
        language="Apache",
    ),
    in_quickstarts(
        *("nginx", "test_web_servers.py::test_nginx_asks_the_flask_application", None, SIGN_IN),
        lines=("auth_request /check;",),
        language="nginx",
    ),
    Library(
        *("oidc-client-ts", "examples/single-page-app/app.js", (SIGN_IN, REFRESH, SIGN_OUT)),
        lock="tests/openid/node/package-lock.json",
        test="tests/openid/test_single_page_app.py::test_oidc_client_ts_signs_in_from_allowed_origins_only",
        language="JavaScript",
    ),
    Library(
        *("openid-client", "tests/openid/node/client.mjs", (SIGN_IN, REFRESH)),
        lines=(METHOD_IN_NODE,),
        lock="tests/openid/node/package-lock.json",
        test=f"{FOREIGN_CLIENTS}::test_openid_client_signs_a_user_in",
    ),
    Library(
        *("oauth4webapi", "tests/openid/node/client.mjs", (SIGN_IN, REFRESH)),
        lines=(METHOD_IN_NODE,),
        lock="tests/openid/node/package-lock.json",
        test=f"{FOREIGN_CLIENTS}::test_oauth4webapi_signs_a_user_in",
    ),
    Library(
        *("mcp", "tests/openid/test_mcp_client.py", (SIGN_IN, REFRESH)),
        lock="requirements/dev.txt",
        test="tests/openid/test_mcp_client.py::test_mcp_client_refreshes_for_the_same_api",
    ),
    *(
        Library(
            *(name, STOCK_VERIFIERS, (VERIFICATION,)),
            lock="requirements/dev.txt",
            test=f"{STOCK_VERIFIERS}::test_stock_verifier_accepts_only_its_access_tokens",
        )
        for name in ("pyjwt", "joserfc")
    ),
    Library(
        *("jose", "tests/openid/node/verify.mjs", (VERIFICATION,)),
        lock="tests/openid/node/package-lock.json",
        test=f"{STOCK_VERIFIERS}::test_stock_verifier_accepts_only_its_access_tokens",
    ),
)
SAMPLES = (*NODE_SAMPLES, *PYTHON_SAMPLES, RUBY_SAMPLE, GO_SAMPLE, PROXY)
LIBRARIES = (*SAMPLES, *NODE_VERIFIERS, PYTHON_VERIFIER, *TESTED_ELSEWHERE)
