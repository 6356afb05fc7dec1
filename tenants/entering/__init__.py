"""Entering a tenant: look it up, find its database, and use the models of tenants there."""
