"""Times of German pages, with their time zone."""

DATETIME_FORMAT = r"j. F Y H:i \U\T\C"
