"""Every path on the sign-in domain of a tenant: its pages and OpenID endpoints, and nothing of the platform."""

from django.shortcuts import redirect
from django.urls import path

from identity_platform.api.handlers import read_only
from identity_platform.api.path_index import PathIndex
from mfa.webauthn.views import RelatedOriginsViewSet
from openid.metadata.views import IssuerViewSet
from openid.pages.unknown import UnknownPage
from openid.urls import below_issuer

handler400 = "identity_platform.api.handlers.bad_request"
handler403 = "identity_platform.api.handlers.forbidden"
handler404 = "identity_platform.api.handlers.unknown_path"
handler500 = "identity_platform.api.handlers.fault"

urlpatterns = [
    path("", read_only(lambda request: redirect("/account"))),
    # The host names the tenant.
    PathIndex("", below_issuer, {"slug": ""}),
    # RFC 8414 section 3.1: an issuer without a path.
    path(".well-known/oauth-authorization-server", IssuerViewSet.as_view({"get": "server_metadata"}), {"slug": ""}),
    path(".well-known/webauthn", RelatedOriginsViewSet.as_view({"get": "retrieve"})),
    path("<path:rest>", UnknownPage.as_view(), {"slug": ""}),
]
