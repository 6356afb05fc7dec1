from console.jobs.models import Job
from console.metrics.models import PlatformDay, TenantDay, TenantFigures
from console.signin.models import BrowserSession

__all__ = ["BrowserSession", "Job", "PlatformDay", "TenantDay", "TenantFigures"]
