"""Stated error bounds, kept by content like the results of compilers (:mod:`tests.runtime.kept`).

Most compilations to text state a bound, which takes a third of the time of a small one, and tests compile the same spec
for several targets and in several files.  The bound depends on the spec without places in its text, on choices of the
schedule, and on the code.  Tests of the bound itself and tests that change constants compute theirs;
``NAUTILUS_KEPT_BOUNDS=0``: all tests do, such as those of mutants of the code.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np

from nautilus.check.bound.bound import Bound
from nautilus.core.source import Span
from nautilus.export.cache_key import sources
from tests.runtime.kept import kept

USED = os.environ.get("NAUTILUS_KEPT_BOUNDS") != "0"


def kept_bounds(given: tuple[Any, ...], make: Callable[[], Mapping[str, Bound]]) -> Mapping[str, Bound]:
    """``make()``, or its result for an equal ``given``."""
    found: Mapping[str, Bound] = pickle.loads(
        kept(("bound", sources(), np.__version__, content(given, {})), lambda: pickle.dumps(dict(make())))
    )
    return found


def content(x: Any, known: dict[int, tuple[Any, str]]) -> str:
    """A text that tells ``x`` from all that differs in more than places in a source; ``known``: of objects."""
    if isinstance(x, Span):
        return ""
    if isinstance(x, tuple | list):
        return f"({','.join(content(i, known) for i in x)})"
    if isinstance(x, set | frozenset):
        return f"{{{','.join(sorted(content(i, known) for i in x))}}}"
    if isinstance(x, Mapping):
        return f"[{','.join(f'{content(k, known)}:{content(v, known)}' for k, v in x.items())}]"
    fields = getattr(type(x), "__dataclass_fields__", None)
    if fields is None or isinstance(x, Enum):
        assert x is None or isinstance(x, str | int | float | Enum), type(x)
        return f"{type(x).__name__} {x!r}"
    if id(x) not in known:  # a digest, so that what many parts share stays short
        text = f"{type(x).__qualname__}({','.join(f'{n}={content(getattr(x, n), known)}' for n in fields)})"
        known[id(x)] = x, hashlib.sha256(text.encode()).hexdigest()
    return known[id(x)][1]
