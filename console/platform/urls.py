"""The platform's pages that belong to no list."""

from django.contrib.admin import AdminSite
from django.urls import URLPattern, path

from console.frame.access import Page
from console.platform import audit_logs, directories, keys, servers, webhooks


def pages(site: AdminSite) -> list[URLPattern]:
    """Return the pages of keys, servers and the audit trail, and of webhooks and directories of the chosen tenant."""

    def of_webhook(name: str, view: Page) -> URLPattern:
        route = f"platform/webhooks/<uuid:endpoint_id>/{name}/"
        url: URLPattern = path(route, site.admin_view(view), name=f"webhook_{name}")
        return url

    def of_directory(name: str, view: Page) -> URLPattern:
        route = f"platform/directories/<uuid:config_id>/{name.replace('_', '-')}/"
        url: URLPattern = path(route, site.admin_view(view), name=f"directory_{name}")
        return url

    return [
        path("platform/signing-keys/", site.admin_view(keys.signing_keys), name="signing_keys"),
        path("platform/signing-keys/rotate/", site.admin_view(keys.Rotate.as_view()), name="signing_keys_rotate"),
        path(
            "platform/signing-keys/<str:kid>/withdraw/",
            site.admin_view(keys.Withdraw.as_view()),
            name="signing_key_withdraw",
        ),
        path("platform/encryption-keys/", site.admin_view(keys.encryption_keys), name="encryption_keys"),
        path("platform/servers/", site.admin_view(servers.listed), name="servers"),
        path("platform/servers/<int:server_id>/", site.admin_view(servers.show), name="server"),
        path(
            "platform/servers/<int:server_id>/change/",
            site.admin_view(servers.ChangeServer.as_view()),
            name="server_change",
        ),
        path("platform/audit/", site.admin_view(audit_logs.listed), name="audit_trail"),
        path("platform/audit/export/", site.admin_view(audit_logs.Export.as_view()), name="audit_export"),
        path("platform/webhooks/", site.admin_view(webhooks.listed), name="webhooks"),
        path("platform/webhooks/add/", site.admin_view(webhooks.CreateEndpoint.as_view()), name="webhook_add"),
        path("platform/webhooks/<uuid:endpoint_id>/", site.admin_view(webhooks.show), name="webhook"),
        of_webhook("edit", webhooks.EditEndpoint.as_view()),
        of_webhook("rotate", webhooks.RotateSecret.as_view()),
        of_webhook("test", webhooks.SendTest.as_view()),
        of_webhook("replay", webhooks.Replay.as_view()),
        of_webhook("delete", webhooks.DeleteEndpoint.as_view()),
        path("platform/directories/", site.admin_view(directories.listed), name="directories"),
        path("platform/directories/<uuid:config_id>/", site.admin_view(directories.show), name="directory"),
        path(
            "platform/directories/<uuid:config_id>/runs/<uuid:run_id>/",
            site.admin_view(directories.show_run),
            name="directory_run",
        ),
        of_directory("dry_run", directories.DryRun.as_view()),
        of_directory("sync", directories.Synchronise.as_view()),
        of_directory("try", directories.TestDirectory.as_view()),
        of_directory("change", directories.EditDirectory.as_view()),
        of_directory("delete", directories.DeleteDirectory.as_view()),
    ]
