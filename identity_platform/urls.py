"""Every path of the platform, one line per room."""

from django.contrib import admin
from django.shortcuts import redirect
from django.urls import URLPattern, URLResolver, path
from django.utils.module_loading import import_string
from django.views.decorators.cache import cache_control
from django.views.generic import RedirectView

from identity_platform.api import docs_site
from identity_platform.api.documents import PARTS, openapi, security_txt
from identity_platform.api.handlers import read_only
from identity_platform.api.metrics import exposition
from identity_platform.api.path_index import PathIndex

handler400 = "identity_platform.api.handlers.bad_request"
handler403 = "identity_platform.api.handlers.forbidden"
handler404 = "identity_platform.api.handlers.unknown_path"
handler500 = "identity_platform.api.handlers.fault"


def _paths_of(module: str) -> list[URLPattern | URLResolver]:
    paths: list[URLPattern | URLResolver] = import_string(f"{module}.urlpatterns")
    return paths


_paths = [
    # The address that bin/serve prints, as people click it.
    path("", read_only(lambda request: redirect("docs"))),
    # In one list: `include` below an empty path would be tried for each request.
    *_paths_of("mfa.urls"),
    *_paths_of("openid.urls"),
    *_paths_of("registry.urls"),
    *_paths_of("userflow.urls"),
    path("metrics", read_only(exposition)),
    path("schema", read_only(RedirectView.as_view(pattern_name="schema", permanent=True, query_string=True))),
    path("docs", read_only(RedirectView.as_view(pattern_name="docs", permanent=True, query_string=True))),
    path("schema/", read_only(openapi), name="schema"),
    *(path(f"schema/{part}/", read_only(openapi), {"part": part}) for part in PARTS),
    *(
        path(f"schema/{part}", read_only(RedirectView.as_view(url=f"/schema/{part}/", permanent=True)))
        for part in PARTS
    ),
    path("docs/", read_only(docs_site.site), {"path": ""}, name="docs"),
    path("docs/api", read_only(RedirectView.as_view(pattern_name="swagger", permanent=True, query_string=True))),
    path("docs/api/", read_only(docs_site.SwaggerView.as_view()), name="swagger"),
    path("docs/<path:path>", read_only(docs_site.site)),
    path("admin/", admin.site.urls),
    path(".well-known/security.txt", read_only(security_txt)),
    # W3C, A Well-Known URL for Changing Passwords. Those of end users are at the tenants' addresses.
    path(".well-known/change-password", read_only(RedirectView.as_view(pattern_name="admin:password_change"))),
    # Where browsers look for the icon of an answer that is no page.
    path(
        "favicon.ico",
        read_only(cache_control(public=True, max_age=86400)(RedirectView.as_view(url="/static/console/icon.svg"))),
    ),
]
urlpatterns = [PathIndex("", _paths)]
