#!/usr/bin/env python
"""Django's command line for this project; `bin/manage` runs it inside the right environment."""

import sys

from identity_platform.management_commands import main

if __name__ == "__main__":
    main(sys.argv)
