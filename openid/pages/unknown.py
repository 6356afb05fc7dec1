"""Addresses below the issuer at which there is nothing."""

from django.http import Http404, HttpRequest, HttpResponseBase

from identity_platform.api.errors import NotFound
from openid.pages.journey import JourneyPage


class UnknownPage(JourneyPage):
    """An error page that leads on, for people; programs get the response of all unknown paths."""

    def dispatch(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        """Respond with the page if the sender wants to read. Raises Http404 otherwise."""
        if request.method not in ("GET", "HEAD") or not request.accepts("text/html") or "Accept" not in request.headers:
            raise Http404
        kwargs.pop("rest")
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest) -> HttpResponseBase:
        """Say that there is nothing. Raises NotFound."""
        raise NotFound
