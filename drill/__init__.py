"""What the platform does when parts of it fail, under load: `bin/drill`."""
