"""One view three times: without a limit, with django-ratelimit on Django's Redis cache, and on the platform's cache.

Which of the three is the environment's `PEER_LIMIT`: `none`, `stock` or `ours`.
"""

import os

from bench.peers import stock

kind = os.environ["PEER_LIMIT"]
stock.configure(
    __name__,
    INSTALLED_APPS=[],
    MIDDLEWARE=[],
    REDIS_URL=os.environ["REDIS_URL"],
    REDIS_TIMEOUT_SECONDS=0.25,
    CACHES={
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": os.environ["REDIS_URL"]},
        "ratelimit": {"BACKEND": "identity_platform.api.cache.RateLimitCache", "LOCATION": os.environ["REDIS_URL"]},
    },
    RATELIMIT_USE_CACHE="ratelimit" if kind == "ours" else "default",
)
application = stock.application()

from django.http import HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402
from django_ratelimit.decorators import ratelimit  # noqa: E402
from identity_platform.api.ratelimit import count  # noqa: E402


def free(request):
    return HttpResponse(b"{}", content_type="application/json")


@ratelimit(key="ip", rate="1000000000/m")
def stocked(request):
    return HttpResponse(b"{}", content_type="application/json")


def ours(request):
    usage = count(group="bench", key=request.META["REMOTE_ADDR"], limit=1_000_000_000, period=60)
    return HttpResponse(b"{}", status=429 if usage.limited else 200, content_type="application/json")


urlpatterns = [path("", {"none": free, "stock": stocked, "ours": ours}[kind])]
