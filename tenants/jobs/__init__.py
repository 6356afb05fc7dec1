"""Jobs on tenants' databases: migrate, back up, restore, move, adopt."""
