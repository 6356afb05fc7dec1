"""Respond with 503 to every request of a fenced installation, except to probes of the process itself."""

from collections.abc import Callable
from typing import Final

from django.http import HttpRequest, HttpResponse

from identity_platform.api.handlers import plain_response
from tenants.database_servers import fences
from tenants.errors import InstallationFenced

# `ready` reports the fence by itself; alerts are made of the metrics.
SERVED: Final = frozenset({"/uflow/health", "/uflow/live", "/uflow/ready", "/metrics"})
# Documents of the release, the same in every installation.
DOCUMENTS: Final = ("/schema/", "/docs/", "/static/")


class Fence:
    """Costs nothing once the process has been allowed to use its database servers."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        served = request.path in SERVED or request.path.startswith(DOCUMENTS)
        if not served and (reasons := fences.reasons()):
            return plain_response(request.path, InstallationFenced(" ".join(reasons)))
        return self.get_response(request)
