"""Every path of the platform, one line per room."""

from django.contrib import admin
from django.shortcuts import redirect
from django.urls import include, path
from django.views.decorators.cache import cache_control
from django.views.generic import RedirectView

from identity_platform.api import docs_site
from identity_platform.api.documents import PARTS, openapi, security_txt
from identity_platform.api.handlers import read_only
from identity_platform.api.metrics import exposition

handler400 = "identity_platform.api.handlers.bad_request"
handler403 = "identity_platform.api.handlers.forbidden"
handler404 = "identity_platform.api.handlers.unknown_path"
handler500 = "identity_platform.api.handlers.fault"

urlpatterns = [
    # The address that bin/serve prints, as people click it.
    path("", read_only(lambda request: redirect("docs"))),
    # First, as few comparisons say whether a path is one of these.
    path("", include("mfa.urls")),
    path("", include("openid.urls")),
    path("", include("userflow.urls")),
    path("", include("registry.urls")),
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
    # Where browsers look for the icon of an answer that is no page.
    path(
        "favicon.ico",
        read_only(cache_control(public=True, max_age=86400)(RedirectView.as_view(url="/static/console/icon.svg"))),
    ),
]
