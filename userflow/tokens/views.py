"""The public keys over HTTP."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from userflow.permissions import Anyone
from userflow.tokens import signing


class JwksOut(serializers.Serializer[Any]):
    keys = serializers.ListField(child=serializers.DictField())


class JwksViewSet(ApiViewSet):
    permission_classes = [Anyone]
    authentication_classes = []

    @endpoint(returns={200: JwksOut}, token="none")
    def retrieve(self, request: Request) -> Response:
        """Current and still valid signing keys (RFC 7517)."""
        return Response({"keys": signing.key_set().jwks}, headers={"Cache-Control": "public, max-age=300"})
