"""Django's format module for English; all times are UTC, and say so: staff sit in several zones."""

DATE_FORMAT = SHORT_DATE_FORMAT = "Y-m-d"
DATETIME_FORMAT = SHORT_DATETIME_FORMAT = r"Y-m-d H:i \U\T\C"
TIME_FORMAT = "H:i"
