"""Folders of the platform, also when root runs a command: the service must be able to write to them."""

import os
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Create a folder that only its owner can enter, and its missing parents, unless it exists. Raises OSError."""
    if folder.is_dir():
        return
    if not folder.parent.exists():
        make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    give_to_owner_of_parent(folder)


def give_to_owner_of_parent(path: Path) -> None:
    """Give a folder or file that root has created to the owner of the folder that it is in. Raises OSError.

    Otherwise one command of root would leave a folder that the service, which runs as another user, cannot write to.
    """
    owner = path.parent.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    # By its handle: the owner of the parent could replace the path by a link to something else.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fchown(handle, owner.st_uid, owner.st_gid)
    finally:
        os.close(handle)
