"""Files in and out: what every import and export of the platform has in common (imports no app).

`rows` reads CSV and JSON lines, `members` says what a row may hold, `report` keeps what was wrong with which row, `runs`
makes an import that was killed go on where it was, `writing` writes files that hold people's data.
"""
