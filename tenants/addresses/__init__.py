"""The names that belong to one tenant: slugs, issuers, domains and origins."""
