"""The settings of a process whose leases expire soon, so that tests need not wait for half a minute."""

from tests.registry.patient_settings import *  # noqa: F403  # a module of settings is all of them

CONNECTION_LEASE_SECONDS = 6.0
