"""Files in and out: what every import and export of the platform has in common. Imports no app."""
