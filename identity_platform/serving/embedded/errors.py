class EmbeddedServerFailed(RuntimeError):
    """An embedded server could not be started; the message ends with the last lines of its log."""
