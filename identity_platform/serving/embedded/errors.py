"""What goes wrong with the embedded servers."""


class EmbeddedServerFailed(RuntimeError):
    """An embedded server could not be started; the message ends with the last lines of its log."""
