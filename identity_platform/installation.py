"""Where the platform's files are and what its commands are called: in a checkout, or installed as a package (a wheel)."""

import os
from pathlib import Path
from typing import Final

VERSION: Final = "1.3.0"
_PACKAGE: Final = Path(__file__).resolve().parent
# What is beside the packages in a checkout (templates, examples, deploy, docs/_site) is in this folder of the wheel.
_PACKAGED_FILES: Final = _PACKAGE / "packaged"
IS_PACKAGE: Final = _PACKAGED_FILES.is_dir()
FILES: Final = _PACKAGED_FILES if IS_PACKAGE else _PACKAGE.parent
# In messages that tell an operator what to run.
MANAGE: Final = "identity manage" if IS_PACKAGE else "bin/manage"
SERVE: Final = "identity serve" if IS_PACKAGE else "bin/serve"


def how_to_install(extra: str) -> str:
    """Return what installs one of the optional sets of packages (`embedded`, `ldap`, `s3`, `tracing`)."""
    if IS_PACKAGE:
        return f"install the package with the extra `{extra}`, as in `identity-platform[{extra}]`"
    return f"install requirements/{extra}.txt"


def default_state_folder() -> Path:
    """Return `var` in a checkout. For a package it is below the user's home, as an update replaces the package."""
    if not IS_PACKAGE:
        return FILES / "var"
    # XDG Base Directory Specification: relative paths are ignored.
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path.home() / ".local" / "state") / "identity-platform"
