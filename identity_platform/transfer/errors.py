"""Errors of imports and exports as a whole; what is wrong with single rows is reported, never raised."""

from identity_platform.api import errors


class FileUnusable(errors.ValidationFailed):
    """400: no row of the file can be read: no header, unknown columns or an unknown format."""

    code = "file_unusable"
    message = "The file cannot be imported."


class ImportRunning(errors.Conflict):
    """409: another process imports the same file into the same tenant, or was killed a moment ago."""

    code = "import_running"
    message = "This file is already being imported. Wait, or take it over with --resume if its process has ended."


class ImportTakenOver(errors.Conflict):
    """409: another process has taken over this import; what this one had committed stays, the other goes on from there."""

    code = "import_taken_over"
    message = "Another process has taken over this import. Nothing was imported twice."


class NothingToResume(errors.NotFound):
    """404: no import of this file was interrupted."""

    code = "nothing_to_resume"
    message = "No import of this file was interrupted. Run it without --resume."
