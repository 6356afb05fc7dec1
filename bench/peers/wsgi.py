"""A WSGI application that answers with a fixed JSON object: what the server program itself costs."""

from bench.peers import stock

stock.configure(__name__, INSTALLED_APPS=[], MIDDLEWARE=[])
urlpatterns = []
_BODY = b"{}"


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(_BODY)))])
    return [_BODY]
