"""Explore for longer than the tests do: `python -m tests.properties.run --steps 100000`; bin/explore starts its servers.

Prints each violation with the shortest sequence of steps, and at the end the figures as JSON: steps, examples per minute, the
operations that were reached. Exit code 1: a property does not hold.
"""

import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path


def main() -> int:
    """Run the campaign in pytest, whose fixtures make the databases."""
    parser = ArgumentParser(prog="explore", description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000, help="Stop after so many steps.")
    parser.add_argument("--examples", type=int, default=10, help="Examples of a start before the next one's turn.")
    parser.add_argument(
        "--seed", type=int, default=1, help="The first seed; each round of all starts has the next one."
    )
    parser.add_argument("--start", action="append", help="Only starts whose name contains this.")
    parser.add_argument("--failures", type=int, default=1, help="Leave a start out after so many violations.")
    parser.add_argument("--no-shorten", action="store_true", help="Report sequences as they were found.")
    parser.add_argument("--ignore", action="append", default=[], help="Ignore violations whose message contains this.")
    parser.add_argument("--json", help="Also write the figures to this file.")
    options = parser.parse_args()
    if options.json:
        options.json = str(Path(options.json).resolve())
    environment = os.environ | {"EXPLORER_OPTIONS": json.dumps(vars(options))}
    campaign = str(Path(__file__).with_name("campaign.py"))
    command = [sys.executable, "-m", "pytest", campaign, "--capture=no", "--tb=line", "-p", "no:cacheprovider"]
    return subprocess.run(command, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
