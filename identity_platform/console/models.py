"""The console's tables; Django finds them here."""

from identity_platform.console.figures.models import PlatformDay, TenantDay, TenantFigures
from identity_platform.console.jobs.models import Job
from identity_platform.console.signin.models import BrowserSession

__all__ = ["BrowserSession", "Job", "PlatformDay", "TenantDay", "TenantFigures"]
