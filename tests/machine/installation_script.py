"""Print the blocks of docs/installing.md as one script, for `.ci/installation`."""

from typing import Final

from tests.documentation.blocks import blocks
from tests.machine.test_installing import PAGE, RUN

REPOSITORY: Final = "https://git.example.com/identity-platform.git"
# What a machine has before the page begins, or systemd would have started; a certificate is the operator's.
SERVERS: Final = """
pg_ctlcluster "$(basename /etc/postgresql/*)" main start
redis-server --save '' --daemonize yes > /dev/null
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /etc/ssl/private/platform.key \\
  -out /etc/ssl/private/platform.pem -subj /CN=id.example.org 2> /dev/null
"""


def main() -> None:
    """Print the script."""
    packages, *others = [block.text for block in blocks() if block.page == PAGE and block.mark == RUN]
    text = "\n".join(others)
    assert text.count(REPOSITORY) == 1
    print("set -eux", packages, SERVERS, text.replace(REPOSITORY, "file:///root/platform.git"), sep="\n")


if __name__ == "__main__":
    main()
