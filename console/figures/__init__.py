"""Rolled-up figures of all tenants in the global database, so that no page walks tenant databases."""
