"""Database servers: how to reach them, whose they are, how they are, and what is replicated between them."""
