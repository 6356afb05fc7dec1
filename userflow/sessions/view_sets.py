from identity_platform.api.views import ApiViewSet
from userflow.sessions.permissions import Anyone


class PublicViewSet(ApiViewSet):
    """Endpoints that look at no token."""

    permission_classes = [Anyone]
    authentication_classes = []
