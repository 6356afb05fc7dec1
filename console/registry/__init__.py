"""The registry's room: services of the chosen tenant and their credentials."""
