"""The settings of a server that counts in the Valkey of all tests.

After 0.25 s in which the machine stood still it would count for itself, from 1 on.
"""

from identity_platform.settings import *  # noqa: F403  # a module of settings is all of them

REDIS_TIMEOUT_SECONDS = 10
