"""Probes for load balancers and orchestrators: public, without limits."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from userflow.health import probes
from userflow.permissions import Anyone


class StatusOut(serializers.Serializer[Any]):
    status = serializers.CharField()


class ReadyOut(StatusOut):
    database = serializers.CharField(help_text="connected or disconnected")
    cache = serializers.CharField(help_text="connected or disconnected")


class HealthViewSet(ApiViewSet):
    permission_classes = [Anyone]
    authentication_classes = []

    @endpoint(returns={200: StatusOut}, token="none")
    def health(self, request: Request) -> Response:
        """The process serves."""
        return Response({"status": "healthy"})

    @endpoint(returns={200: StatusOut}, token="none")
    def live(self, request: Request) -> Response:
        """The process lives."""
        return Response({"status": "alive"})

    @endpoint(returns={200: ReadyOut, 503: ReadyOut}, token="none")
    def ready(self, request: Request) -> Response:
        """Global database and cache answer; a single tenant's database does not count."""
        database, cache = probes.database_answers(), probes.cache_answers()
        ready = database and cache
        answer = {
            "status": "ready" if ready else "not_ready",
            "database": "connected" if database else "disconnected",
            "cache": "connected" if cache else "disconnected",
        }
        return Response(answer, status=200 if ready else 503, headers={} if ready else {"Retry-After": "2"})
