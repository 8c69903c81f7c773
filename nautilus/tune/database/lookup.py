"""Selection of the schedule of the database that a compilation uses.

The selection is deterministic for given databases and a given machine.  It filters in this order:

1. rows of the user's and the shipped database with the same key (family, sizes, architecture, precision) that were
   measured on a GPU and checked;
2. if these rows come from several devices, rows of the device of this machine, if there are any;
3. rows of this compiler version, if there are any;
4. rows that won the final series of a search, if there are any, else rows of finalists;
5. the least median time; among equal times the least hash of the schedule.

A row of an older format, or whose schedule this compiler cannot read, is skipped.  Rows of other sizes are not used,
because a schedule that is fast at one size may be slow at another; a search starts from them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from math import log2

from nautilus.core.schedule import Schedule
from nautilus.frontend.spec import Spec
from nautilus.passes.manager import Context
from nautilus.tune.database.rows import COMPILER, Key, Row, key_of
from nautilus.tune.database.store import SHIPPED, select, user_path


def tuned_schedule(spec: Spec, context: Context) -> Schedule | None:
    """The schedule of the databases for ``spec`` in ``context``; None without a usable row."""
    if not spec.family:
        return None
    key = key_of(spec, context.arch, context.precision).hash
    for row in ranked([*select(user_path(), key), *select(SHIPPED, key)], device_here):
        try:
            return row.read_schedule()
        except ValueError:
            continue
    return None


def ranked(rows: Iterable[Row], device: Callable[[], str]) -> list[Row]:
    """The usable rows among ``rows`` of one key, the best first.

    ``device`` returns the device of this machine; it is called only for rows of several devices.
    """
    usable = [r for r in rows if r.usable]
    if len({r.device for r in usable}) > 1:
        here = device()
        usable = _prefer(usable, lambda r: r.device == here)
    usable = _prefer(usable, lambda r: r.compiler == COMPILER)
    usable = _prefer(usable, lambda r: r.final)
    usable = _prefer(usable, lambda r: r.chosen)
    return sorted(usable, key=lambda r: (r.seconds or 0.0, r.schedule_hash))


def _prefer(rows: list[Row], wanted: Callable[[Row], bool]) -> list[Row]:
    return [r for r in rows if wanted(r)] or rows


def device_here() -> str:
    """The name of the GPU of this machine; empty without one."""
    from nautilus.core.errors import ToolchainError
    from nautilus.runtime.device import open_device

    if not any(os.path.exists(p) for p in ("/dev/nvidiactl", "/dev/dxg")):
        return ""
    try:
        return open_device().name
    except ToolchainError:
        return ""


def neighbours(rows: Iterable[Row], key: Key) -> list[Row]:
    """The best rows of the same family at the three nearest other sizes, one for each size, nearest first."""
    groups: dict[str, list[Row]] = {}
    own = key.hash
    for r in rows:
        alike = (r.family, r.arch, r.precision) == (key.family, key.arch, key.precision)
        if alike and r.key != own and r.usable and r.values:
            groups.setdefault(r.key, []).append(r)
    best = [ranked(g, lambda: "")[0] for g in groups.values()]
    return sorted(best, key=lambda r: (_distance(r.sizes, key.sizes), r.key))[:3]


def _distance(a: Mapping[str, int | None], b: Mapping[str, int | None]) -> float:
    """The distance of two sets of sizes: the sum of |log2| of their ratios; 4 for a size that only one set fixes."""
    far = 0.0
    for name in sorted({*a, *b}):
        x, y = a.get(name), b.get(name)
        far += abs(log2(x / y)) if x and y else float(x != y) * 4.0
    return far
