"""Build the documentation site into docs/_site: `bin/docs`. Warnings, also of links that lead nowhere, are errors."""

import base64
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from sphinx.cmd.build import main as sphinx_build

from docs.builder.pages import DOCS, SourceFolder

SITE = DOCS / "_site"


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        source, site = Path(name, "source"), Path(name, "site")
        source.mkdir()
        SourceFolder(source).write(openapi_document(name))
        options = ["-q", "-W", "-n", "--keep-going", "-j", "auto", "-c", str(DOCS / "builder")]
        if status := sphinx_build([*options, "-d", f"{name}/doctrees", str(source), str(site)]):
            return status
        # The Markdown of the pages is published beside them, with its images.
        shutil.copytree(source, site, dirs_exist_ok=True)
        for unused in (".buildinfo", "objects.inv"):
            (site / unused).unlink(missing_ok=True)
        replace(SITE, site)
    print(f"{SITE} ({len(list(SITE.rglob('*.html')))} pages). The platform serves it at /docs/.")
    return 0


def openapi_document(state: str) -> dict[str, object]:
    """Return the platform's own document. Generating it connects to no server, so any valid settings do."""
    for variable in [name for name in os.environ if name.endswith("_FILE")]:
        del os.environ[variable]
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "identity_platform.settings",
        "SECRET_KEY": "for-the-documentation-only-" * 2,
        "ENCRYPTION_KEYS": f"k1:{base64.b64encode(bytes(32)).decode()}",
        "EMAIL_URL": "console:",
        "ALLOWED_HOSTS": "id.example.com",
        "BASE_URL": "https://id.example.com",
        "DATABASE_URL": "postgresql://localhost/none",
        "REDIS_URL": "redis://localhost/0",
        "IDENTITY_VAR": state,
    }
    import django
    from django.http import HttpRequest

    django.setup()
    from identity_platform.api.documents import openapi

    document: dict[str, object] = json.loads(openapi(HttpRequest()).content)
    return document


def replace(old: Path, new: Path) -> None:
    """Put a folder in place of another, so that readers find either of them."""
    staged = old.with_name(f"{old.name}.new")
    previous = old.with_name(f"{old.name}.old")
    for folder in (staged, previous):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(new, staged)
    if old.exists():
        old.rename(previous)
    staged.rename(old)
    shutil.rmtree(previous, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
