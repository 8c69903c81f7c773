"""Work as a number of function calls, which no other process and no slower machine changes.

A limit on it finds an algorithm that became quadratic, and a module that is imported without need, as a limit on
seconds would. It does not see a slower built-in function.
"""

from __future__ import annotations

import cProfile
from collections.abc import Callable


def calls(work: Callable[[], object]) -> int:
    """The calls of functions, Python's own and built-in ones, while ``work`` runs in this thread."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())
