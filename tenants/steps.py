"""The steps of the jobs on tenants' databases, told as they end."""


def ended(step: str) -> None:
    """Called with the name of the step that has just ended: the place where tests kill the process."""
