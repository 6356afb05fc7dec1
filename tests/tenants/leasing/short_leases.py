"""The settings of a process whose leases expire soon, so that tests need not wait for half a minute."""

import os

from tests.registry.patient_settings import *  # noqa: F403  # a module of settings is all of them

CONNECTION_LEASE_SECONDS = 6.0
# The setting follows TENANT_CONNECTION_BUDGET; a small server has less than its default.
if "BASE_CONNECTION_BUDGET" in os.environ:
    BASE_CONNECTION_BUDGET = int(os.environ["BASE_CONNECTION_BUDGET"])
