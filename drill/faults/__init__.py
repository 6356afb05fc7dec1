"""What the drills do to the platform and its servers."""
