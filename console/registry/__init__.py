"""Services of the chosen tenant and their credentials."""
