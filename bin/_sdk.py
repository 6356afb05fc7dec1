"""Generate sdk/typescript/src/schema.ts and sdk/python/src/identity_sdk/models.py from the API document.

The argument `--check` compares instead of writing, `--document FILE` takes a document that was generated before.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.openid.node_client import install_packages, node_programs

ROOT = Path(__file__).resolve().parent.parent
TYPESCRIPT = ROOT / "sdk/typescript"
SCHEMA = TYPESCRIPT / "src/schema.ts"
MODELS = ROOT / "sdk/python/src/identity_sdk/models.py"
# Generating connects to nothing, so any valid values do.
SETTINGS = {
    "SECRET_KEY": "for-the-api-document-only",
    "ENCRYPTION_KEYS": f"k1:{'0' * 43}=",
    "EMAIL_URL": "console:",
    "ALLOWED_HOSTS": "localhost",
    "DATABASE_URL": "postgresql://localhost/none",
    "REDIS_URL": "redis://localhost/0",
}


def main() -> None:
    """Write the files, or exit with 1 and their names if `--check` finds that they are stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--document", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        document = successes(
            json.loads(arguments.document.read_bytes() if arguments.document else own_document(folder))
        )
        fresh = {SCHEMA: typescript(document, folder), MODELS: python(document, folder)}
    if not arguments.check:
        for path, text in fresh.items():
            path.write_text(text)
        return
    stale = [path for path, text in fresh.items() if not path.exists() or path.read_text() != text]
    if stale:
        sys.exit(f"Run bin/sdk; stale: {', '.join(str(path.relative_to(ROOT)) for path in stale)}")


def own_document(folder: Path) -> bytes:
    """Return the API document of this checkout."""
    os.environ |= {**SETTINGS, "IDENTITY_VAR": str(folder)}
    import django

    django.setup()
    from identity_platform.api.documents import _document

    return _document()


def successes(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without headers and error responses, which the SDKs read by hand (`ApiError`)."""

    def kept(operation: dict[str, Any]) -> dict[str, Any]:
        responses = {
            status: {name: part for name, part in response.items() if name != "headers"}
            for status, response in operation["responses"].items()
            if status.startswith(("2", "3"))
        }
        return {**operation, "responses": responses}

    paths = {
        path: {method: kept(operation) for method, operation in operations.items()}
        for path, operations in document["paths"].items()
    }
    components = document["components"]
    used: set[tuple[str, str]] = set()
    unread = references(paths)
    while unread:
        used |= unread
        unread = {each for kind, name in unread for each in references(components[kind][name])} - used
    shared = {
        kind: {name: part for name, part in parts.items() if (kind, name) in used}
        for kind, parts in components.items()
        if kind != "securitySchemes"
    }
    return {**document, "paths": paths, "components": {**components, **shared}}


def references(part: Any) -> set[tuple[str, str]]:
    """Return kind and name of the components that a part of the document names."""
    if isinstance(part, list):
        return {each for item in part for each in references(item)}
    if not isinstance(part, dict):
        return set()
    named = part.get("$ref")
    own = {tuple(named.split("/")[2:4])} if isinstance(named, str) else set()
    return own | {each for item in part.values() for each in references(item)}


def typescript(document: dict[str, Any], folder: Path) -> str:
    """Return the types of the calls. Defaults are left out: some are settings of a deployment."""
    source, target = folder / "openapi.json", folder / "schema.ts"
    source.write_text(json.dumps(without_defaults(document)))
    install_packages(TYPESCRIPT)
    node, _ = node_programs()
    command = [node, TYPESCRIPT / "node_modules/openapi-typescript/bin/cli.js", source, "--output", target]
    run([*command, "--alphabetize"])
    return target.read_text()


def without_defaults(part: Any, *, of_properties: bool = False) -> Any:
    """Return a part of the document without default values; a property with this name stays."""
    if isinstance(part, list):
        return [without_defaults(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        name: without_defaults(each, of_properties=name == "properties" and not of_properties)
        for name, each in part.items()
        if name != "default" or of_properties
    }


def python(document: dict[str, Any], folder: Path) -> str:
    """Return one typed dictionary for each schema."""
    source, target = folder / "schemas.json", folder / "models.py"
    source.write_text(json.dumps(document))
    command = [sys.executable, "-m", "datamodel_code_generator", "--input", source, "--input-file-type", "openapi"]
    command += ["--output", target, "--output-model-type", "typing.TypedDict", "--target-python-version", "3.11"]
    command += [
        "--formatters",
        "builtin",
        "--disable-timestamp",
        "--no-use-closed-typed-dict",
        "--use-standard-collections",
        "--use-union-operator",
    ]
    run([*command, "--custom-file-header", '"""The schemas of the API document. Generated by bin/sdk."""'])
    return target.read_text()


def run(command: list[Any]) -> None:
    """Run a generator; exit with its output if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


if __name__ == "__main__":
    main()
