from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group

import console.jobs.admin
import console.people.lists
import console.platform.lists
import console.registry.lists
import console.tenants.admin  # noqa: F401  # each registers its pages

# Django's groups are not used: admin users have roles (userflow.admins).
admin.site.unregister(Group)
# Operators see jobs, not the queue behind them.
admin.site.unregister(apps.get_model("procrastinate", "ProcrastinateJob"))
