"""Programs that the platform is compared with."""
