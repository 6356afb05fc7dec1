"""A page on which a newcomer tries every factor; in embedded mode only. It is also the example of the integration guide."""
