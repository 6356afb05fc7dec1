"""fastapi-users with tokens in the database."""
