"""`identity`, the command of the installed package. In a checkout bin/serve and bin/manage do the same."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from identity_platform.installation import FILES, VERSION

COMMANDS: Final = {
    "serve": "run the platform: with embedded servers, or on those of DATABASE_URL and REDIS_URL",
    "prepare": "migrate the databases and create what the first request needs, as serve does first",
    "demo": "print the credentials of the demo tenant again (embedded servers only)",
    "doctor": "examine the installation and write a report without secrets",
    "manage": "run one of all management commands: identity manage COMMAND --help",
}


def main() -> None:
    """Run the command that the first word names, with the words after it as its arguments."""
    parser = argparse.ArgumentParser(
        prog="identity",
        description="Multi-tenant identity platform with a database per tenant.",
        epilog="commands:\n"
        + "\n".join(f"  {name:8} {text}" for name, text in COMMANDS.items())
        + f"\n\nExamples for nginx, systemd, Kubernetes and others are in {FILES / 'deploy'}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"identity {VERSION}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    command = parser.parse_args(sys.argv[1:2] or ["--help"]).command
    arguments = sys.argv[2:]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "identity_platform.settings")
    if command == "serve":
        _serve(arguments)
        return
    from identity_platform.management_commands import main as run_management_command

    run_management_command(
        ["identity manage", *arguments] if command == "manage" else ["identity", command, *arguments]
    )


def _serve(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="identity serve",
        description="Run the platform until Ctrl-C or SIGTERM. HOST and PORT (127.0.0.1:8000) are its address, "
        "IDENTITY_VAR is its state folder. Without DATABASE_URL and REDIS_URL it starts PostgreSQL and Valkey (the extra "
        "`embedded`), with an operator and a demo tenant at the first start.",
    )
    parser.parse_args(arguments)
    from identity_platform.serving.server import main as run_server

    run_server()
