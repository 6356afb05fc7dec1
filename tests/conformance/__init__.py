"""Runs plans of the OpenID Foundation's conformance suite against a running platform: `python -m tests.conformance`."""
