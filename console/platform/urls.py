"""The platform's pages that belong to no list, and those of webhooks and directories of the chosen tenant."""

from typing import Final

from django.contrib.admin import AdminSite
from django.urls import URLPattern, path

from console.frame.access import Page
from console.platform import audit_logs, directories, keys, servers, webhooks

_WEBHOOK: Final = "webhooks/<uuid:endpoint_id>"
_DIRECTORY: Final = "directories/<uuid:config_id>"
# Path, name, page.
PAGES: Final[tuple[tuple[str, str, Page], ...]] = (
    ("signing-keys", "signing_keys", keys.signing_keys),
    ("signing-keys/rotate", "signing_keys_rotate", keys.Rotate.as_view()),
    ("signing-keys/<str:kid>/withdraw", "signing_key_withdraw", keys.Withdraw.as_view()),
    ("encryption-keys", "encryption_keys", keys.encryption_keys),
    ("servers", "servers", servers.listed),
    ("servers/<int:server_id>", "server", servers.show),
    ("servers/<int:server_id>/change", "server_change", servers.ChangeServer.as_view()),
    ("audit", "audit_trail", audit_logs.listed),
    ("audit/export", "audit_export", audit_logs.Export.as_view()),
    ("webhooks", "webhooks", webhooks.listed),
    ("webhooks/add", "webhook_add", webhooks.CreateEndpoint.as_view()),
    (_WEBHOOK, "webhook", webhooks.show),
    (f"{_WEBHOOK}/edit", "webhook_edit", webhooks.EditEndpoint.as_view()),
    (f"{_WEBHOOK}/rotate", "webhook_rotate", webhooks.RotateSecret.as_view()),
    (f"{_WEBHOOK}/test", "webhook_test", webhooks.SendTest.as_view()),
    (f"{_WEBHOOK}/replay", "webhook_replay", webhooks.Replay.as_view()),
    (f"{_WEBHOOK}/delete", "webhook_delete", webhooks.DeleteEndpoint.as_view()),
    ("directories", "directories", directories.listed),
    (_DIRECTORY, "directory", directories.show),
    (f"{_DIRECTORY}/runs/<uuid:run_id>", "directory_run", directories.show_run),
    (f"{_DIRECTORY}/dry-run", "directory_dry_run", directories.DryRun.as_view()),
    (f"{_DIRECTORY}/sync", "directory_sync", directories.Synchronize.as_view()),
    (f"{_DIRECTORY}/try", "directory_try", directories.TestDirectory.as_view()),
    (f"{_DIRECTORY}/change", "directory_change", directories.EditDirectory.as_view()),
    (f"{_DIRECTORY}/delete", "directory_delete", directories.DeleteDirectory.as_view()),
)


def pages(site: AdminSite) -> list[URLPattern]:
    """Return the pages behind the sign-in."""
    return [path(f"platform/{route}/", site.admin_view(page), name=name) for route, name, page in PAGES]
