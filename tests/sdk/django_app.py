"""A Django project whose views are the examples of sdk/python/README.md, in a process of its own.

Arguments: the issuer. Prints its port.
"""

import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.urls import path

from tests.sdk.readme import example, names_of


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["rest_framework"],
    REST_FRAMEWORK={"UNAUTHENTICATED_USER": None},
    SECRET_KEY="of-a-test",
    IDENTITY_SDK={"issuer": sys.argv[1], "audience": "identity-api"},
)
django.setup()
views = {**names_of(example("python", "Django")), **names_of(example("python", "Django REST framework"))}
urlpatterns = [path("django", views["invoices"]), path("drf", views["InvoiceList"].as_view())]
server = make_server("127.0.0.1", 0, get_wsgi_application(), handler_class=Quiet)
print(server.server_port, flush=True)
server.serve_forever(0.02)
