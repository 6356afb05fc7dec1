"""Paths below the issuer of a tenant, and its metadata."""

from django.urls import URLPattern, URLResolver, path
from django.views.generic import RedirectView

from identity_platform.api.handlers import read_only
from identity_platform.api.path_index import PathIndex
from openid.authorization.pushing import PushedRequestViewSet
from openid.authorization.views import Authorize
from openid.device.views import DeviceAuthorizationViewSet
from openid.domain_check import DomainCheckViewSet
from openid.logout.pages import LogoutPage
from openid.metadata.views import IssuerViewSet
from openid.pages.email_undo import EmailUndoPage
from openid.pages.unknown import UnknownPage
from openid.pages.urls import urlpatterns as pages
from openid.tokens.state import TokenStateViewSet
from openid.tokens.views import OpenIDTokenViewSet
from openid.userinfo.views import UserinfoViewSet

# At `/t/{slug}`, or at the root of a tenant's sign-in domain (openid.domain_urls).
below_issuer: list[URLPattern | URLResolver] = [
    # In the order of their use.
    path("token", OpenIDTokenViewSet.as_view({"post": "token"})),
    path("authorize", Authorize.as_view(), name="openid_authorize"),
    path("userinfo", UserinfoViewSet.as_view({"get": "read", "post": "post"})),
    path("jwks", IssuerViewSet.as_view({"get": "jwks"})),
    path("par", PushedRequestViewSet.as_view({"post": "push"})),
    path("device_authorization", DeviceAuthorizationViewSet.as_view({"post": "authorize"})),
    path(".well-known/openid-configuration", IssuerViewSet.as_view({"get": "metadata"})),
    path("introspect", TokenStateViewSet.as_view({"post": "introspect"})),
    path("revoke", TokenStateViewSet.as_view({"post": "revoke"})),
    path("logout", LogoutPage.as_view()),
    *pages,
]
# For a person who opens the issuer itself.
_to_account = read_only(RedirectView.as_view(url="/t/%(slug)s/account"))
urlpatterns = [
    path("t/domain-check", DomainCheckViewSet.as_view({"get": "retrieve"})),
    # Not below the issuer, which may be at the tenant's own domain.
    path("t/<str:slug>/email-undo", EmailUndoPage.as_view()),
    path("t/<str:slug>", _to_account),
    path("t/<str:slug>/", _to_account),
    PathIndex("t/<str:slug>/", below_issuer),
    # RFC 8414 section 3.1: the path of the issuer follows the well-known part.
    path(".well-known/oauth-authorization-server/t/<str:slug>", IssuerViewSet.as_view({"get": "server_metadata"})),
    path("t/<str:slug>/<path:rest>", UnknownPage.as_view()),
]
