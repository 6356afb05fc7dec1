"""Which storage of backup sets a command names."""

from pathlib import Path

from tenants.backups.backup_folders import Folder
from tenants.backups.backup_storage import SCHEME, Storage
from tenants.errors import BucketsMissing


def located(text: str | Path) -> Storage:
    """Return the storage that a command names: a folder or `s3://bucket/prefix`. Raises BucketsMissing."""
    if not str(text).startswith(SCHEME):
        return Folder(Path(text).resolve())
    try:
        from tenants.backups.backup_buckets import Bucket
    except ImportError as missing:
        raise BucketsMissing from missing
    return Bucket(str(text))
