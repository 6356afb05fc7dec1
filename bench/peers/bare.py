"""A bare DRF view over a ModelSerializer: no authentication, no permissions, no tenants, on the same table.

Stock but for one thing in its favour: its database connection persists, where Django's default opens one per request.
"""

import os

from bench.peers import stock
from psycopg.conninfo import conninfo_to_dict

_parts = conninfo_to_dict(os.environ["PEER_DATABASE_URL"])
stock.configure(
    __name__,
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": _parts["dbname"],
            "USER": _parts["user"],
            "HOST": _parts["host"],
            "CONN_MAX_AGE": None,
        }
    },
)
application = stock.application()

from django.db import models  # noqa: E402
from django.urls import path  # noqa: E402
from rest_framework.response import Response  # noqa: E402
from rest_framework.serializers import ModelSerializer  # noqa: E402
from rest_framework.views import APIView  # noqa: E402

LISTED = ["id", "email", "name", "active", "provider", "client_id", "created_at", "last_login"]


class EndUser(models.Model):
    id = models.UUIDField(primary_key=True)
    email = models.CharField(max_length=254)
    name = models.CharField(max_length=255)
    active = models.BooleanField()
    provider = models.CharField(max_length=63)
    client_id = models.UUIDField(null=True)
    metadata = models.JSONField()
    mfa_methods = models.JSONField()
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    last_login = models.DateTimeField(null=True)

    class Meta:
        app_label = "bare"
        managed = False
        db_table = "userflow_enduser"


class ListedSerializer(ModelSerializer):
    class Meta:
        model = EndUser
        fields = LISTED


class DetailSerializer(ModelSerializer):
    class Meta:
        model = EndUser
        fields = [*LISTED, "updated_at", "metadata", "mfa_methods"]


class Detail(APIView):
    authentication_classes = []
    permission_classes = []

    def get(self, request, user_id):
        return Response(DetailSerializer(EndUser.objects.get(pk=user_id)).data)


class Listing(APIView):
    authentication_classes = []
    permission_classes = []

    def get(self, request):
        page, limit = int(request.query_params["page"]), int(request.query_params["limit"])
        users = EndUser.objects.order_by("-created_at", "-id")
        total = users.count()
        rows = users[(page - 1) * limit : page * limit]
        return Response(
            {
                "page": page,
                "limit": limit,
                "total": total,
                "total_pages": -(-total // limit),
                "users": ListedSerializer(rows, many=True).data,
            }
        )


urlpatterns = [path("users", Listing.as_view()), path("users/<uuid:user_id>", Detail.as_view())]
