"""A room of userflow."""
