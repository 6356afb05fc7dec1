"""What an application needs to sign users in through a client, as text to copy."""

from typing import Final

from console.frame.records import Text
from userflow.accounts.models import Client
from userflow.clients.actions import has_secret

_EXAMPLE_URI: Final = "https://app.example/callback"
_SECRET: Final = "<client secret>"  # a placeholder
_SCOPES: Final = "openid profile email"


def configuration_of(client: Client, issuer: str) -> list[tuple[Text, str]]:
    """Return headings and texts: the plain values, and the same for common libraries."""
    redirect = (client.redirect_uris or [_EXAMPLE_URI])[0]
    discovery = f"{issuer}/.well-known/openid-configuration"
    values = [f"OIDC_ISSUER={issuer}", f"OIDC_CLIENT_ID={client.pk}", f"OIDC_DISCOVERY_URL={discovery}"]
    if not has_secret(client):
        return [
            ("OpenID Connect", "\n".join(values)),
            (
                "oidc-client-ts",
                "new UserManager({\n"
                f'  authority: "{issuer}",\n  client_id: "{client.pk}",\n'
                f'  redirect_uri: "{redirect}",\n  scope: "{_SCOPES}",\n}});',
            ),
            ("openid-client", f'await client.discovery(new URL("{issuer}"), "{client.pk}");'),
        ]
    return [
        ("OpenID Connect", "\n".join([*values, f"OIDC_CLIENT_SECRET={_SECRET}"])),
        (
            "Authlib (Python)",
            'oauth.register(\n    "identity",\n'
            f'    client_id="{client.pk}",\n    client_secret="{_SECRET}",\n'
            f'    server_metadata_url="{discovery}",\n'
            f'    client_kwargs={{"scope": "{_SCOPES}", "code_challenge_method": "S256"}},\n)',
        ),
        ("openid-client (Node.js)", f'await client.discovery(new URL("{issuer}"), "{client.pk}", "{_SECRET}");'),
        (
            "Auth.js (Next.js)",
            f'{{\n  id: "identity", name: "Identity", type: "oidc",\n  issuer: "{issuer}",\n'
            f'  clientId: "{client.pk}", clientSecret: "{_SECRET}",\n  checks: ["pkce", "state", "nonce"],\n}}',
        ),
    ]
