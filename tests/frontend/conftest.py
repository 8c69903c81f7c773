"""Keeps the parser's cache of these tests out of the user's cache directory."""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("NAUTILUS_CACHE_DIR", os.path.join(tempfile.gettempdir(), "nautilusc-tests"))
