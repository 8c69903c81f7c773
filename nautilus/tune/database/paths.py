"""Where the user's tuning database is. This module imports only the standard library, so that it loads fast."""

from __future__ import annotations

import os
from pathlib import Path


def user_path() -> Path:
    """The path of the user's database: ``$NAUTILUS_DB``, else ``tuning.jsonl`` in :func:`data_folder`."""
    return Path(os.environ["NAUTILUS_DB"]) if os.environ.get("NAUTILUS_DB") else data_folder() / "tuning.jsonl"


def data_folder() -> Path:
    """The folder of nautilusc's persistent data (XDG Base Directory Specification, ``XDG_DATA_HOME``)."""
    root = os.environ.get("XDG_DATA_HOME", "")
    base = Path(root) if os.path.isabs(root) else Path(os.path.expanduser("~")) / ".local" / "share"
    return base / "nautilusc"
