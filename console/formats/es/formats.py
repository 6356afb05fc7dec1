"""Times of Spanish pages, with their time zone."""

DATETIME_FORMAT = r"j \d\e F \d\e Y H:i \U\T\C"
