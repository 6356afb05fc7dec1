"""A page to try every factor, in embedded mode only. It is also the example of the integration guide."""
