"""Serves a peer exactly as the platform is served: `python -m bench.peers.serve bench.peers.bare`."""

import importlib
import os
import sys

import django

from identity_platform.serving.server import bound, listen, load_before_forking, serve


def main() -> None:
    module = sys.argv[1]
    importlib.import_module(module)
    # Where the server listens it says which pages the apps have.
    django.setup()
    with bound("127.0.0.1", int(os.environ["PORT"])) as listener:
        load_before_forking()
        listen(listener)
        serve(listener, int(os.environ["WEB_WORKERS"]), int(os.environ["WEB_THREADS"]), module=module)


if __name__ == "__main__":
    main()
