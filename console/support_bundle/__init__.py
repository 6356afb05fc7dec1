"""The report of `doctor`: the state of an installation for those who look for the cause of a problem, without secrets."""
