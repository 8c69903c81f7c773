"""Which cases a run of the tests has: some of those that stand for each other, or all of them.

``NAUTILUS_FULL=1`` (``make test-full``) asks for all.  :mod:`tests.cases.table` names the tests with fewer cases else.
"""

from __future__ import annotations

import os

FULL = os.environ.get("NAUTILUS_FULL", "0") != "0"


def some(few: int, every: int) -> int:
    """The number of seeds or examples of this run: ``every`` in a run of all cases."""
    return every if FULL else few
