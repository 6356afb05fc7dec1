"""Paths below the issuer of a tenant, and its metadata."""

from django.urls import path
from django.views.decorators.http import conditional_page

from openid.metadata.views import IssuerViewSet

urlpatterns = [
    path("t/<str:slug>/jwks", conditional_page(IssuerViewSet.as_view({"get": "jwks"}))),
    # RFC 8414 section 3.1: the path of the issuer follows the well-known part.
    path(".well-known/oauth-authorization-server/t/<str:slug>", IssuerViewSet.as_view({"get": "metadata"})),
]
