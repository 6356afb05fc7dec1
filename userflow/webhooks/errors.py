"""Errors of webhook endpoints."""

from identity_platform.api import errors


class UnknownEndpoint(errors.NotFound):
    """404: no such webhook endpoint in this tenant."""

    message = "No webhook endpoint with this id exists in this tenant."


class TooManyEndpoints(errors.Conflict):
    """409: the tenant has reached its maximum number of webhook endpoints."""

    message = "This tenant has reached its maximum number of webhook endpoints. Delete one first."


class EndpointOff(errors.Conflict):
    """409: the webhook endpoint is disabled, so nothing is sent to it."""

    message = 'This webhook endpoint is disabled. Enable it first with {"enabled": true}.'
