"""The content of a stored run, by which tests of several folders compare runs."""

from pathlib import Path

from goalscope.runs import Store, content_hash


def hash_of(directory: Path) -> str:
    """Return the content hash of the run in a directory."""
    with Store(directory) as store:
        return content_hash(store)
