"""A tenant's people in and out: files by command, small ones over REST."""
