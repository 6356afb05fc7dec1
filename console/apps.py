"""The console's own app, and Django's admin with our site instead of the default one."""

from django.apps import AppConfig
from django.contrib.admin import apps as admin_apps

from identity_platform.api.app_parts import ApiPart


class ConsoleConfig(AppConfig):
    """Pages for operators and tenant admins, and the metrics behind the dashboard."""

    default = True
    name = "console"
    label = "console"
    api_part = ApiPart(staff_pages=frozenset({"/admin/"}), log_areas=frozenset({"console"}))

    def ready(self) -> None:
        from console.metrics import consistency, exposition
        from identity_platform.api import metrics
        from tenants.consistency.findings import examinations

        metrics.add_collector("figures", exposition.collect)
        examinations.register(consistency.examine)


class ConsoleAdminConfig(admin_apps.AdminConfig):
    """Django's admin; `admin.site` is the console."""

    default = False
    default_site = "console.frame.site.ConsoleSite"

    def ready(self) -> None:
        super().ready()
        from django.contrib import admin

        from console.frame.labels import name_columns

        name_columns(admin.site)
