"""Paths below the issuer of a tenant, and its metadata."""

from django.urls import include, path
from django.views.decorators.http import conditional_page

from openid.authorization.pushing import PushedRequestViewSet
from openid.authorization.views import Authorize
from openid.device.views import DeviceAuthorizationViewSet
from openid.logout.pages import LogoutPage
from openid.metadata.views import IssuerViewSet
from openid.tokens.state import TokenStateViewSet
from openid.tokens.views import OpenIDTokenViewSet
from openid.userinfo.views import UserinfoViewSet

urlpatterns = [
    path("t/<str:slug>/jwks", conditional_page(IssuerViewSet.as_view({"get": "jwks"}))),
    path("t/<str:slug>/token", OpenIDTokenViewSet.as_view({"post": "token"})),
    path("t/<str:slug>/par", PushedRequestViewSet.as_view({"post": "push"})),
    path("t/<str:slug>/device_authorization", DeviceAuthorizationViewSet.as_view({"post": "authorize"})),
    path("t/<str:slug>/.well-known/openid-configuration", IssuerViewSet.as_view({"get": "metadata"})),
    path("t/<str:slug>/introspect", TokenStateViewSet.as_view({"post": "introspect"})),
    path("t/<str:slug>/revoke", TokenStateViewSet.as_view({"post": "revoke"})),
    path("t/<str:slug>/userinfo", UserinfoViewSet.as_view({"get": "read", "post": "post"})),
    path("t/<str:slug>/logout", LogoutPage.as_view()),
    path("t/<str:slug>/authorize", Authorize.as_view(), name="openid_authorize"),
    path("t/<str:slug>/", include("openid.pages.urls")),
    # RFC 8414 section 3.1: the path of the issuer follows the well-known part.
    path(".well-known/oauth-authorization-server/t/<str:slug>", IssuerViewSet.as_view({"get": "metadata"})),
]
