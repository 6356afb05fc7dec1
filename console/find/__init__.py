"""The search of the console over tenants, admin users, clients, services and end users."""
