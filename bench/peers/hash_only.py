"""A view that verifies one argon2id hash with the platform's parameters and does nothing else: no body, no database.

No more at once than cores, which is the fastest there is: more threads than that lose up to a quarter. By argon2-cffi, which
Django uses, or with PEER_LIBSODIUM by what the platform takes where it is faster.
"""

import os
import threading

import argon2
import nacl.pwhash.argon2id
from bench.peers import stock
from django.http import HttpResponse
from django.urls import path

stock.configure(__name__, INSTALLED_APPS=[], MIDDLEWARE=[])
application = stock.application()

_encoded = os.environ["PEER_HASH"].removeprefix("argon2").encode()
_password = os.environ["PEER_PASSWORD"].encode()
_verify = nacl.pwhash.argon2id.verify if "PEER_LIBSODIUM" in os.environ else argon2.PasswordHasher().verify
_slots = threading.BoundedSemaphore(max(1, (os.cpu_count() or 1) // int(os.environ["WEB_WORKERS"])))


def verify(request):
    with _slots:
        _verify(_encoded, _password)
    return HttpResponse(b"{}", content_type="application/json")


urlpatterns = [path("", verify)]
