"""Names of the measured programs, and what each of them leaves out in the requests that are compared."""

from __future__ import annotations

from typing import Final

_NO_TENANTS = "tenants (sessions and a database of their own)"

# Name in the samples: its name in the tables.
NAMES: Final = {
    "platform": "this platform",
    "django-allauth": "django-allauth",
    "better-auth": "better-auth",
    "fastapi-users": "fastapi-users",
    "django-tenants": "django-tenants",
    "keycloak": "Keycloak",
    "hash": "bare hash",
    "drf": "bare DRF view",
    "wsgi": "bare WSGI response",
}
REFRESH_LEAVES_OUT: Final = "revocation of the session when a token is used twice, asymmetric signatures (HS256 here)"
LEAVES_OUT: Final = {
    "platform": "",
    "django-allauth": f"rate limits and lockout (it has both, deactivated here), audit, permissions, {_NO_TENANTS}",
    "better-auth": f"rate limits (it has them, deactivated here), lockout, audit, permissions, {_NO_TENANTS}",
    "fastapi-users": f"rate limits, lockout, audit, permissions, a list of sessions, {_NO_TENANTS}",
    "django-tenants": "a database for each tenant (it makes a schema), admin, client, keys, audit",
    "keycloak": "a database for each tenant; lockout and audit (it has both, deactivated by default)",
    "hash": "all but the hash",
    "drf": "authentication, permissions, rate limits, audit, tenants",
    "wsgi": "all but the server program",
}
# What a program leaves out as well, by samples and name.
ALSO_LEAVES_OUT: Final = {
    ("peers_refresh", "django-allauth"): REFRESH_LEAVES_OUT,
    ("keycloak_refresh", "keycloak"): "a new refresh token each time (it can, not by default)",
    ("keycloak_introspection", "keycloak"): "the database (it has sessions and users in memory)",
    ("keycloak_userinfo", "keycloak"): "the database (it has sessions and users in memory)",
    ("keycloak_metadata", "keycloak"): "the database (it has realms in memory)",
    ("keycloak_list", "keycloak"): "the total",
}
