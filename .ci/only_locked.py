"""Fail unless this environment has exactly the packages of the given lock files, at their versions, and the code imports.

Run by the environment's own Python, in the tree: `.venv/bin/python -P only_locked.py requirements.txt ...`.
"""

import importlib
import importlib.metadata
import pkgutil
import re
import sys
from pathlib import Path

# What `python -m venv` brings.
SEED = {"pip", "setuptools"}


def name_of(text: str) -> str:
    """Normalize a package name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", text).lower()


locked = {
    (name_of(name), version)
    for lock in sys.argv[1:]
    for name, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", Path(lock).read_text(encoding="utf-8"), re.MULTILINE)
}
installed = {(name_of(one.metadata["Name"]), one.version) for one in importlib.metadata.distributions()}
extra = sorted(one for one in installed - locked if one[0] not in SEED)
if extra or not installed:
    sys.exit(f"Installed, but not in {', '.join(sys.argv[1:])}: {extra}")

sys.path.insert(0, str(Path.cwd()))
import django  # noqa: E402  # found only now

django.setup()
packages = ["identity_platform", "tenants", "userflow", "registry", "mfa", "federation", "openid", "console"]
# These need packages of their own, and are imported where they are used.
OPTIONAL = ("identity_platform.serving.embedded", "tenants.backups.backup_buckets")
modules = [
    module.name
    for package in packages
    for module in pkgutil.walk_packages([package], f"{package}.")
    if not module.name.startswith(OPTIONAL)
]
for module in modules:
    importlib.import_module(module)
print(f"{len(installed)} packages, all of them locked; {len(modules)} modules import.")
