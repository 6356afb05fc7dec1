"""Bodies of the API document's request examples: what each operation's example has besides its required fields.

Required fields that are not stated here have the values of `example_values`.
"""

from collections.abc import Mapping
from typing import Any, Final

from userflow.api_part.example_values import (
    ACCESS_TOKEN,
    ADMIN_EMAIL,
    ADMIN_ID,
    CLIENT_ID,
    CLIENT_SECRET,
    MAIL_TOKEN,
    PASSWORD,
    REFRESH_TOKEN,
    TENANT_ID,
)

CLIENT: Final = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
CALLBACK: Final = "https://app.example.com/callback"

BODIES: Final[Mapping[str, Mapping[str, Any]]] = {
    # Sign-in and tokens
    "loginAdmin": {"username": ADMIN_EMAIL},
    "requestToken": {"grant_type": "refresh_token", "refresh_token": REFRESH_TOKEN, "client_id": CLIENT_ID},
    "introspectToken": {"token": ACCESS_TOKEN, **CLIENT},
    "revokeToken": {"token": REFRESH_TOKEN, **CLIENT},
    "logout": {"all": True},
    "checkPermissions": {"permissions": ["services:read", "services:write"], "mode": "any"},
    "updateProfile": {"name": "Ada M. Moreno", "language": "en"},
    "changePassword": {"current_password": PASSWORD},
    "requestAdminPasswordReset": {"email": ADMIN_EMAIL},
    "requestPasswordReset": {"client_id": CLIENT_ID},
    "verifyEmail": {"token": MAIL_TOKEN},
    # End users
    "registerEndUser": {"password": PASSWORD, "name": "Ada Moreno"},
    "listEndUsersWithBody": {"email": "@example.com", "active": True, "page": 1, "limit": 20},
    "listEndUsersOfProject": {"project_id": "invoicing"},
    "updateEndUser": {"name": "Ada M. Moreno", "app_metadata": {"department": "Sales"}, "external_id": "crm-48213"},
    "setEndUserStatus": {"active": True},
    "setEndUserActive": {"active": True},
    "importEndUsers": {"rows": [{"email": "noah.keller@example.com", "name": "Noah Keller"}], "on_conflict": "skip"},
    "exportEndUsers": {"limit": 100},
    # Groups and roles
    "createRole": {
        "name": "approver",
        "description": "Approves invoices.",
        "permissions": ["invoices:read", "invoices:approve"],
    },
    "updateRole": {"permissions": ["invoices:read"]},
    "createGroup": {"name": "Accounting", "description": "Works on invoices.", "roles": ["approver"]},
    "updateGroup": {"description": "Works on invoices and payments."},
    # Clients
    "createClient": {
        "name": "Invoices",
        "type": "confidential",
        "redirect_uris": [CALLBACK],
        "scopes": ["services:read"],
        "tags": ["web"],
    },
    "updateClient": {"name": "Invoices and payments"},
    "patchClient": {"access_token_seconds": 900},
    "rotateClientSecret": {"overlap_seconds": 86_400},
    # Invitations and admin users
    "createInvitation": {"email": "mina.sato@example.com", "kind": "end_user", "roles": ["approver"]},
    "acceptInvitation": {"name": "Mina Sato"},
    "createAdminUser": {"email": ADMIN_EMAIL, "roles": ["user-manager"]},
    "updateAdminUser": {"last_name": "Brandt-Ito"},
    "setAdminUserActive": {"user_id": ADMIN_ID, "active": True},
    # Tenants and domains
    "createTenant": {"name": "Acme", "slug": "acme"},
    "updateTenant": {"name": "Acme Ltd"},
    "deleteTenant": {"confirm": "acme"},
    "updateTenantSettings": {"settings": {"password_min_length": 12, "account_deletion": "on"}},
    "updateTenantBranding": {"name": "Acme", "color_light": "#0b5fff", "privacy_url": "https://example.com/privacy"},
    "addDomain": {"domain": "login.example.com"},
    "updateDomain": {"sign_in": True},
    "verifyDomain": {"tenant_id": TENANT_ID},
    # Directories and webhooks
    "createDirectory": {
        "kind": "entra_id",
        "name": "Head office",
        "secret": "es_3Vq8Zt5Nb2Kx",
        "directory_tenant_id": "example.com",
        "application_id": "3e8b1f60-92a7-4d5c-8f34-c07b6a1d2e95",
    },
    "updateDirectory": {"sync_every_minutes": 60},
    "syncDirectory": {"dry_run": True},
    "createWebhookEndpoint": {"description": "CRM", "events": ["end_user.*"]},
    "updateWebhookEndpoint": {"events": ["end_user.created", "end_user.erased"]},
    "rotateWebhookSecret": {"tenant_id": TENANT_ID},
    "testWebhookEndpoint": {"tenant_id": TENANT_ID},
    "replayWebhookMessages": {"status": "dead"},
}
