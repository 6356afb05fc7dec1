"""The console's tables; Django finds them here."""

from identity_platform.console.figures.models import PlatformDay, TenantDay, TenantFigures
from identity_platform.console.jobs.models import Job

__all__ = ["Job", "PlatformDay", "TenantDay", "TenantFigures"]
