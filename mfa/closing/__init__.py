"""A room of mfa."""
