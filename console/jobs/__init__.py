"""Long operations that are started in the console and outlive the request."""
