"""Registers the lists of the console."""

from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group

from console.jobs.admin import JobAdmin
from console.jobs.models import Job
from console.people import lists as people
from console.platform.lists import AdminInvitationAdmin, AdminRoleAdmin, AdminUserAdmin, ClientAdmin
from console.registry.lists import ServiceAdmin
from console.tenants.admin import TenantAdmin
from registry.models import Service
from tenants.models import Tenant
from userflow.accounts.models import AdminRole, AdminUser, Client
from userflow.invitations.models import AdminInvitation

# Django's groups are not used: admin users have roles (userflow.admins).
admin.site.unregister(Group)
# Operators see jobs, not the queue behind them.
admin.site.unregister(apps.get_model("procrastinate", "ProcrastinateJob"))

admin.site.register(Tenant, TenantAdmin)
admin.site.register(Job, JobAdmin)
admin.site.register(Service, ServiceAdmin)
admin.site.register(Client, ClientAdmin)
admin.site.register(AdminUser, AdminUserAdmin)
admin.site.register(AdminRole, AdminRoleAdmin)
admin.site.register(AdminInvitation, AdminInvitationAdmin)

__all__ = ["people"]
