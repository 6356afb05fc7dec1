"""The settings of a release with one tenant migration more than this one."""

from identity_platform.settings import *  # noqa: F403
from identity_platform.settings import INSTALLED_APPS, PLATFORM_APPS

PLATFORM_APPS = [*PLATFORM_APPS, "tests.tenants.newer_release"]
INSTALLED_APPS = [*INSTALLED_APPS, "tests.tenants.newer_release"]
