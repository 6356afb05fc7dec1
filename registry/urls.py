"""Paths of the registry, in the order of the specification."""

from django.urls import path

from registry.views import CredentialViewSet, DebugViewSet, ServiceViewSet

urlpatterns = [
    path("exsvc/api/v1/services", ServiceViewSet.as_view({"get": "list", "post": "create"})),
    path(
        "exsvc/api/v1/services/<str:service_id>",
        ServiceViewSet.as_view({"get": "retrieve", "put": "update", "delete": "destroy"}),
    ),
    path(
        "exsvc/api/v1/services/<str:service_id>/credentials",
        CredentialViewSet.as_view({"get": "list", "post": "create"}),
    ),
    path(
        "exsvc/api/v1/services/<str:service_id>/credentials/<str:credential_id>",
        CredentialViewSet.as_view({"get": "retrieve", "put": "update", "delete": "destroy"}),
    ),
    path("exsvc/debug/auth", DebugViewSet.as_view({"get": "auth"})),
]
