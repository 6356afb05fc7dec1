"""The protocols of other OpenID providers and social networks, without rows and pages: discovery, requests, identities."""
