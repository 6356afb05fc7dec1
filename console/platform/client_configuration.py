"""What an application needs to use a client, as text to copy: only what this client may do and how it authenticates.

Code reads the secret from the environment, so that it can be copied and stored as it is.
"""

from typing import Final
from urllib.parse import urlsplit

from userflow.accounts.client_fields import CONFIDENTIAL
from userflow.accounts.grant_types import (
    AUTHORIZATION_CODE,
    CLIENT_CREDENTIALS,
    DEVICE_CODE,
    LABELS,
    grant_types_in_force,
)
from userflow.accounts.models import Client
from userflow.clients.actions import has_secret
from userflow.clients.kinds import signs_in_with_browser
from userflow.sessions.client_authentication import POST

# Placeholders, and where code finds the secret.
_SECRET: Final = "<client secret>"
_SECRET_IN_NODE: Final = "process.env.OIDC_CLIENT_SECRET"
_SECRET_IN_PYTHON: Final = 'os.environ["OIDC_CLIENT_SECRET"]'
_REDIRECT: Final = "<redirect URI>"
_SCOPES: Final = "openid profile email"

Samples = list[tuple[str, str]]


def configuration_of(client: Client, issuer: str, secret: str | None = None) -> Samples:
    """Return headings and texts: the plain values, and code for common libraries that works with this client.

    `secret` is known on the page that shows it once; elsewhere a placeholder takes its place.
    """
    values = [f"OIDC_ISSUER={issuer}", f"OIDC_CLIENT_ID={client.pk}", f"OIDC_DISCOVERY_URL={_discovery(issuer)}"]
    if has_secret(client):
        values.append(f"OIDC_CLIENT_SECRET={secret or _SECRET}")
    samples: Samples = [("OpenID Connect", "\n".join(values))]
    grant_types = grant_types_in_force(client.grant_types, type_=client.type, scopes=client.scopes)
    if signs_in_with_browser(client):
        samples += _sign_in(client, issuer)
    if DEVICE_CODE in grant_types:
        samples.append(_openid_client(client, issuer, DEVICE_CODE, _DEVICE))
    if CLIENT_CREDENTIALS in grant_types:
        samples += _own_tokens(client, issuer)
    return samples


def _gets_bound_tokens(client: Client) -> bool:
    return client.dpop_bound_access_tokens or client.tls_client_certificate_bound_access_tokens


def _discovery(issuer: str) -> str:
    return f"{issuer}/.well-known/openid-configuration"


def _sign_in(client: Client, issuer: str) -> Samples:
    redirect = (client.redirect_uris or [_REDIRECT])[0]
    build = "buildAuthorizationUrlWithPAR" if client.require_par else "buildAuthorizationUrl"
    samples = [_openid_client(client, issuer, AUTHORIZATION_CODE, _CODE % {"build": build, "redirect": redirect})]
    if client.require_par:
        # The other libraries do not push requests.
        return samples
    if client.type != CONFIDENTIAL and redirect.startswith(("https:", "http:", _REDIRECT)):
        return [("oidc-client-ts", _oidc_client_ts(client, issuer, redirect)), *samples]
    if not has_secret(client) or _gets_bound_tokens(client):
        return samples
    authlib, auth_js = _authlib(client, issuer, redirect), _auth_js(client, issuer)
    return [("Authlib (Python)", authlib), *samples, ("Auth.js (Next.js)", auth_js)]


def _authlib(client: Client, issuer: str, redirect: str) -> str:
    posts = f', "token_endpoint_auth_method": "{POST}"' if _posts(client) else ""
    return (
        "import os\n\nfrom authlib.integrations.django_client import OAuth\n\n"
        "# Flask: flask_client, and no `request`. FastAPI: starlette_client, and await.\n"
        'oauth = OAuth()\noauth.register(\n    "identity",\n'
        f'    client_id="{client.pk}",\n    client_secret={_SECRET_IN_PYTHON},\n'
        f'    server_metadata_url="{_discovery(issuer)}",\n'
        f'    client_kwargs={{"scope": "{_SCOPES}", "code_challenge_method": "S256"{posts}}},\n)\n\n\n'
        f'def sign_in(request):\n    return oauth.identity.authorize_redirect(request, "{redirect}")\n\n\n'
        "def callback(request):  # at the redirect URI\n"
        '    return oauth.identity.authorize_access_token(request)["userinfo"]'
    )


def _auth_js(client: Client, issuer: str) -> str:
    posts = f'    client: {{ token_endpoint_auth_method: "{POST}" }},\n' if _posts(client) else ""
    return (
        "// npm install next-auth@5.0.0-beta.32: without the version npm installs 4, which has no `handlers`.\n"
        'import NextAuth from "next-auth";\n\n'
        "// The redirect URI of the client ends in /api/auth/callback/identity.\n"
        "export const { handlers, auth, signIn, signOut } = NextAuth({\n  providers: [{\n"
        f'    id: "identity", name: "Identity", type: "oidc",\n    issuer: "{issuer}",\n'
        f'    clientId: "{client.pk}", clientSecret: {_SECRET_IN_NODE},\n'
        f'{posts}    checks: ["pkce", "state", "nonce"],\n  }}],\n'
        "  // `secret` encrypts the sessions of the application. `trustHost` is for a server behind a proxy that sets `Host`.\n"
        "  secret: process.env.SECRET_KEY, trustHost: true,\n});"
    )


def _oidc_client_ts(client: Client, issuer: str, redirect: str) -> str:
    parts = urlsplit(redirect)
    origin = f"{parts.scheme}://{parts.netloc}"
    hint = f"// Add {origin} to the allowed origins of the client.\n" if origin not in client.allowed_origins else ""
    dpop = "  dpop: { bind_authorization_code: true, store: new IndexedDbDPoPStore() },\n"
    imports = "IndexedDbDPoPStore, UserManager" if client.dpop_bound_access_tokens else "UserManager"
    return (
        f'import {{ {imports} }} from "oidc-client-ts";\n\n'
        f"{hint if parts.netloc else ''}const users = new UserManager({{\n"
        f'  authority: "{issuer}",\n  client_id: "{client.pk}",\n  redirect_uri: "{redirect}",\n'
        f'  scope: "{_SCOPES}",\n{dpop if client.dpop_bound_access_tokens else ""}}});'
    )


def _own_tokens(client: Client, issuer: str) -> Samples:
    scope = " ".join(client.scopes)
    samples = [_openid_client(client, issuer, CLIENT_CREDENTIALS, _OWN % {"scope": scope})]
    if not has_secret(client) or _gets_bound_tokens(client):
        return samples
    posts = f', token_endpoint_auth_method="{POST}"' if _posts(client) else ""
    authlib = (
        "import os\n\nfrom authlib.integrations.requests_client import OAuth2Session\n\n"
        f'session = OAuth2Session("{client.pk}", {_SECRET_IN_PYTHON}, scope="{scope}"{posts})\n'
        f'session.fetch_token("{issuer}/token", grant_type="client_credentials")'
    )
    return [(f"Authlib (Python): {LABELS[CLIENT_CREDENTIALS]}", authlib), *samples]


# openid-client 6. Without DPoP the last argument is left out.
_CODE: Final = """\
const pkceCodeVerifier = client.randomPKCECodeVerifier();
const expectedState = client.randomState();
const address = await client.%(build)s(config, {
  redirect_uri: "%(redirect)s", scope: "openid profile email", state: expectedState,
  code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier), code_challenge_method: "S256",
});
// Redirect the browser to the address. `back` is the address that it comes back to:
const checks = { pkceCodeVerifier, expectedState };
const tokens = await client.authorizationCodeGrant(config, new URL(back), checks, undefined, { DPoP });"""
_DEVICE: Final = """\
const codes = await client.initiateDeviceAuthorization(config, { scope: "openid profile email" });
console.log(`Open ${codes.verification_uri} and enter ${codes.user_code}`);
const tokens = await client.pollDeviceAuthorizationGrant(config, codes, undefined, { DPoP });"""
_OWN: Final = """\
const tokens = await client.clientCredentialsGrant(config, { scope: "%(scope)s" }, { DPoP });"""


def _openid_client(client: Client, issuer: str, grant_type: str, use: str) -> tuple[str, str]:
    """Return heading and text for openid-client, which knows every way to authenticate, PAR and DPoP."""
    key = client.type == CONFIDENTIAL and not has_secret(client)
    lines = ['import * as client from "openid-client";']
    if key:
        lines += ['import { importJWK } from "jose";', ""]
        lines += ['const jwk = JSON.parse(process.env.OIDC_PRIVATE_KEY);  // your private key, with "kid"']
        lines += ['const key = await importJWK(jwk, jwk.alg ?? "ES256");']
        by = "PrivateKeyJwt({ key, kid: jwk.kid })"
    elif has_secret(client):
        by = f"{'ClientSecretPost' if _posts(client) else 'ClientSecretBasic'}({_SECRET_IN_NODE})"
    else:
        by = "None()"
    lines += [f'const server = new URL("{issuer}");']
    # The library accepts an issuer without TLS, which is one of a development machine, only on request.
    insecure = ", { execute: [client.allowInsecureRequests] }" if issuer.startswith("http:") else ""
    lines += [f'const config = await client.discovery(server, "{client.pk}", undefined, client.{by}{insecure});']
    if client.dpop_bound_access_tokens:
        lines += ['const DPoP = client.getDPoPHandle(config, await client.randomDPoPKeyPair("ES256"));']
    else:
        use = use.replace(", undefined, { DPoP }", "").replace(", { DPoP }", "")
    return f"openid-client (Node.js): {LABELS[grant_type]}", "\n".join([*lines, use])


def _posts(client: Client) -> bool:
    return client.token_endpoint_auth_method == POST
