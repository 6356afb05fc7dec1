"""Backup sets of all tenants, in folders and buckets."""
