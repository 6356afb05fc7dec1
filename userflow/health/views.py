"""Probes for load balancers and orchestrators: public, without limits, and without the tenants' databases."""

from django.db import Error, connection
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api import valkey
from identity_platform.api.views import endpoint
from identity_platform.postgresql.statements import fetch_row
from tenants.database_servers import fences
from userflow.sessions.view_sets import PublicViewSet


def database_answers() -> bool:
    """Return whether the global database executes a statement within the statement timeout of requests."""
    try:
        fetch_row("default", "SELECT 1")
    except Error:
        # The next probe opens a new connection.
        connection.close()
        return False
    return True


class HealthStatusOut(serializers.Serializer[object]):
    status = serializers.CharField(help_text="healthy or alive")


class ReadinessOut(HealthStatusOut):
    status = serializers.CharField(
        help_text="ready, degraded (200: cache or global database are unavailable, users are served) or not_ready (503)"
    )
    database = serializers.CharField(help_text="connected or disconnected")
    cache = serializers.CharField(help_text="connected or disconnected")
    fenced = serializers.CharField(
        help_text="Why it serves nothing, if it was restored and no operator has adopted it; else empty."
    )


class HealthViewSet(PublicViewSet):
    @endpoint(id="checkHealth", returns={200: HealthStatusOut}, token="none")
    def health(self, request: Request) -> Response:
        """Check that the process accepts requests.

        Not limited in rate.
        """
        return Response({"status": "healthy"})

    @endpoint(id="checkLiveness", returns={200: HealthStatusOut}, token="none")
    def live(self, request: Request) -> Response:
        """Check that the process is running.

        Not limited in rate.
        """
        return Response({"status": "alive"})

    @endpoint(id="checkReadiness", returns={200: ReadinessOut, 503: ReadinessOut}, token="none")
    def ready(self, request: Request) -> Response:
        """Check that database and cache are available.

        503 if the global database was restored and not adopted (`fenced`), or is unavailable and has never been read. While
        it is unavailable, end users and applications are served, operators and tenant admins are not (`degraded`). Without
        the cache all are served (`degraded`). Tenant databases are not checked.
        """
        database, cache = database_answers(), valkey.is_connected(timeout=1.0)
        fenced = " ".join(fences.reasons())
        served_at_all = fences.serves()
        served = "ready" if cache and database else "degraded"
        body = {
            "status": served if served_at_all else "not_ready",
            "database": "connected" if database else "disconnected",
            "cache": "connected" if cache else "disconnected",
            "fenced": fenced,
        }
        ready = {"status": 200} if served_at_all else {"status": 503, "headers": {"Retry-After": "2"}}
        return Response(body, **ready)
