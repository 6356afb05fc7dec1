"""The audit logs of the platform and of the open tenant: search, pages with names, and export."""
