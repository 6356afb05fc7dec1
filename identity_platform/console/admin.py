"""The lists of the console; Django finds them here."""

from django.contrib import admin
from django.contrib.auth.models import Group

from identity_platform.console.people import lists as people
from identity_platform.console.services.lists import ServiceAdmin
from registry.models import Service

# Django's groups mean nothing here: admin users have roles (userflow.admins).
admin.site.unregister(Group)

admin.site.register(Service, ServiceAdmin)

__all__ = ["people"]
