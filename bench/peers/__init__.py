"""What the platform is compared with."""
