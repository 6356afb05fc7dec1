"""The platform's pages that belong to no list."""

from typing import Any

from django.contrib.admin import AdminSite
from django.urls import URLPattern, path

from console.platform import audit_logs, directories, keys, servers, webhooks


def pages(site: AdminSite) -> list[URLPattern]:
    """Keys, servers, the audit trail; webhooks and directories of the chosen tenant."""

    def of_webhook(name: str, view: Any) -> URLPattern:
        route = f"platform/webhooks/<uuid:endpoint_id>/{name}/"
        url: URLPattern = path(route, site.admin_view(view), name=f"webhook_{name}")
        return url

    def of_directory(name: str, view: Any) -> URLPattern:
        route = f"platform/directories/<uuid:config_id>/{name.replace('_', '-')}/"
        url: URLPattern = path(route, site.admin_view(view), name=f"directory_{name}")
        return url

    return [
        path("platform/signing-keys/", site.admin_view(keys.signing_keys), name="signing_keys"),
        path("platform/signing-keys/rotate/", site.admin_view(keys.rotate), name="signing_keys_rotate"),
        path("platform/signing-keys/<str:kid>/withdraw/", site.admin_view(keys.withdraw), name="signing_key_withdraw"),
        path("platform/encryption-keys/", site.admin_view(keys.encryption_keys), name="encryption_keys"),
        path("platform/servers/", site.admin_view(servers.listed), name="servers"),
        path("platform/servers/<int:server_id>/", site.admin_view(servers.show), name="server"),
        path("platform/servers/<int:server_id>/change/", site.admin_view(servers.change), name="server_change"),
        path("platform/audit/", site.admin_view(audit_logs.listed), name="audit_trail"),
        path("platform/audit/export/", site.admin_view(audit_logs.export), name="audit_export"),
        path("platform/webhooks/", site.admin_view(webhooks.listed), name="webhooks"),
        path("platform/webhooks/add/", site.admin_view(webhooks.create), name="webhook_add"),
        path("platform/webhooks/<uuid:endpoint_id>/", site.admin_view(webhooks.show), name="webhook"),
        of_webhook("edit", webhooks.edit),
        of_webhook("rotate", webhooks.rotate),
        of_webhook("test", webhooks.test),
        of_webhook("replay", webhooks.replay),
        of_webhook("delete", webhooks.delete),
        path("platform/directories/", site.admin_view(directories.listed), name="directories"),
        path("platform/directories/<uuid:config_id>/", site.admin_view(directories.show), name="directory"),
        path(
            "platform/directories/<uuid:config_id>/runs/<uuid:run_id>/",
            site.admin_view(directories.show_run),
            name="directory_run",
        ),
        of_directory("dry_run", directories.dry_run),
        of_directory("sync", directories.sync),
        of_directory("try", directories.try_it),
        of_directory("change", directories.change),
        of_directory("delete", directories.delete),
    ]
