"""A store that lies elsewhere: copied once into the cache, its hashes checked, then opened like any other.

In: a URL that fsspec knows (s3://, gs://, hdfs://, https://, memory:// …).  Out: a local folder.  Next: store.py
"""

import hashlib
import json
from pathlib import Path

import fsspec

from bertkit.console import Progress, say
from bertkit.data.store import MANIFEST, PARTS
from bertkit.errors import InputError
from bertkit.files import cache_directory, directory_written_atomically, locked

TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")


def local_store(location: str) -> Path:
    """Return the folder of a store: `location` itself, or where a copy of the remote one stands.

    Raises:
        InputError: no store at the URL, a file system that fsspec lacks a package for, or a copy whose hash is wrong.
    """
    if "://" not in location:
        return Path(location)
    try:
        file_system, root = fsspec.core.url_to_fs(location)
        manifest_bytes = file_system.cat_file(f"{root}/{MANIFEST}")
        key = json.loads(manifest_bytes)["key"]
    except (OSError, ImportError, ValueError, KeyError) as problem:
        raise InputError(
            f"gives no store ({problem})",
            field="--data_dir",
            value=location,
            expected="the URL of a folder that `bertkit prepare` wrote",
            remedy="check the URL; s3:// needs the package s3fs, gs:// gcsfs",
        ) from None
    directory = cache_directory() / "stores" / f"remote-{key[:24]}"
    with locked(cache_directory() / "locks" / f"{directory.name}.lock"):  # one process copies, others of this host wait
        if directory.exists():
            say(f"store: {directory} (copied before from {location})")
            return directory
        with (
            directory_written_atomically(directory) as folder,
            Progress("copying", total=None, unit="files") as progress,
        ):
            (folder / MANIFEST).write_bytes(manifest_bytes)
            for name in TOKENIZER_FILES:
                (folder / name).write_bytes(file_system.cat_file(f"{root}/{name}"))
            for part in PARTS:
                (folder / part).mkdir()
                manifest = file_system.cat_file(f"{root}/{part}/{MANIFEST}")
                (folder / part / MANIFEST).write_bytes(manifest)
                for shard in json.loads(manifest)["shards"]:
                    content = file_system.cat_file(f"{root}/{part}/{shard['file']}")
                    if hashlib.sha256(content).hexdigest() != shard["sha256"]:
                        raise InputError(
                            "is damaged (its hash is not the manifest's)",
                            file=f"{location}/{part}/{shard['file']}",
                            remedy="copy the store there again",
                        )
                    (folder / part / shard["file"]).write_bytes(content)
                    progress.advance()
    return directory
