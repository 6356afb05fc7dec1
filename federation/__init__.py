"""Sign-in through identity providers of tenants and social networks: connections, and the protocols that they speak."""
