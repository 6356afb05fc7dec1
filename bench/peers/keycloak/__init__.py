"""Keycloak: its distribution from Maven Central, a server in production mode, and its realms."""
