"""Signals by which the core notifies the apps above, which it cannot import."""

from typing import Final

from django.dispatch import Signal

# A worker process of the server is about to serve requests. Sent in that process, without arguments.
worker_starting: Final = Signal()

# Every few seconds, and at the end of a worker process, in a thread of it that may use the global database. Sent without
# arguments. A receiver raises nothing.
worker_resting: Final = Signal()
