"""SAML 2.0 as a service provider: requests, responses and metadata in bytes. No database, no HTTP.

The profile is narrower than the standard: what it leaves out is what attacks on other service providers used.
"""
