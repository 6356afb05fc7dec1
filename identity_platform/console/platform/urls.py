"""The platform's pages that belong to no list."""

from django.contrib.admin import AdminSite
from django.urls import URLPattern, path

from identity_platform.console.platform import keys, servers, trail


def pages(site: AdminSite) -> list[URLPattern]:
    """Keys, servers and the audit trail."""
    return [
        path("platform/signing-keys/", site.admin_view(keys.signing_keys), name="signing_keys"),
        path("platform/signing-keys/rotate/", site.admin_view(keys.rotate), name="signing_keys_rotate"),
        path("platform/signing-keys/<str:kid>/withdraw/", site.admin_view(keys.withdraw), name="signing_key_withdraw"),
        path("platform/encryption-keys/", site.admin_view(keys.encryption_keys), name="encryption_keys"),
        path("platform/servers/", site.admin_view(servers.listed), name="servers"),
        path("platform/servers/<int:server_id>/", site.admin_view(servers.show), name="server"),
        path("platform/servers/<int:server_id>/change/", site.admin_view(servers.change), name="server_change"),
        path("platform/audit/", site.admin_view(trail.listed), name="audit_trail"),
        path("platform/audit/export/", site.admin_view(trail.export), name="audit_export"),
    ]
