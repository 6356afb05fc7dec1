"""Long work that somebody began in the console and that outlives the request."""
