"""A module as one module for each kernel, where equal ones are one object.

The module of one kernel has the buffers that the kernel names, and no other kernel, so that whatever a step makes of it
depends on these alone.  Two are one object where they are equal in every detail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, get_args

from nautilus.core.expr.nodes import Expr, loads
from nautilus.core.records import dataclass
from nautilus.core.records.identical import identical
from nautilus.core.records.memo import Results, Same, by_identity, first_equal
from nautilus.core.schedule import Schedule, recomputed
from nautilus.core.source import Span

_EXPRESSIONS: Final = get_args(Expr)
_WITHOUT_TEXT: Final = frozenset({type(None), bool, int, float, Span})  # most of what a kernel is made of
_ALIKE: Final = 16  # modules of one name that are compared with a new one, the newest first


@dataclass(frozen=True, slots=True)
class Divided:
    """``frame``: the module without kernels; ``alone``: the module of each kernel, in order."""

    frame: Any
    alone: tuple[Any, ...]

    def module(self, like: Any) -> Any:
        """The whole module; ``like``, one without other kernels or buffers, where it has the same kernels."""
        kernels = tuple(k for m in self.alone for k in m.kernels)
        if type(like) is type(self.frame) and _same_objects(kernels, like.kernels):
            return like
        return replace(self.frame, kernels=kernels)


class Divisions:
    """The division of each module that was asked for, and the modules of one kernel that all of them share."""

    def __init__(self) -> None:
        self._of = Results(1 << 12)
        self._alike: dict[object, list[Any]] = {}
        self._plans = Results(4096)

    def clear(self) -> None:
        """Forget all modules."""
        self._of.found.clear()
        self._alike.clear()
        self._plans.found.clear()

    def of(self, module: Any) -> Divided:
        """The division of ``module``."""
        found: Divided | None = self._of.found.get(Same(module))
        return self._divide(module, None) if found is None else found

    def after(self, before: Any, module: Any) -> None:
        """Divide ``module``, which a step has made from ``before`` with a look at all kernels.

        Most kernels are as they were, and others differ from them in few ops.  Where no buffer is new, each kernel
        names those that it named before.
        """
        known = self._of.found.get(Same(before))
        if module is not before and known is not None:
            self._divide(module, known)

    def keep(self, module: Any, divided: Divided) -> None:
        """Remember ``divided`` as the division of ``module``."""
        self._of.keep(Same(module), divided)

    def plan_of(self, schedule: Schedule | None, kernel: str) -> Schedule | None:
        """What ``schedule`` says about ``kernel`` and about all kernels."""
        if schedule is None:
            return None
        key = (Same(schedule), kernel)
        found: Schedule | None = self._plans.found.get(key)
        if found is None:
            own = {kernel, recomputed(kernel, schedule)}
            plans = tuple(k for k in schedule.kernels if k.name in own)
            found = first_equal(replace(schedule, inline=None, copies=None, packs=None, splits=None, kernels=plans))
            self._plans.keep(key, found)
        return found

    def _divide(self, module: Any, before: Divided | None) -> Divided:
        frame = replace(module, kernels=())
        earlier = {} if before is None else {m.kernels[0].name: m for m in before.alone if len(m.kernels) == 1}
        kept = before is not None and _same_objects(before.frame.buffers, frame.buffers)
        made = Divided(frame, tuple(self._alone(frame, k, earlier.get(k.name), kept) for k in module.kernels))
        self.keep(module, made)
        return made

    def _alone(self, frame: Any, kernel: Any, earlier: Any, kept: bool) -> Any:
        """The module of ``kernel``; ``earlier``: that of the kernel before the step; ``kept``: no buffer is new."""
        if kept and earlier is not None:
            if earlier.kernels[0] is kernel:
                return earlier
            made = replace(earlier, kernels=(kernel,))
        else:
            named = _names(kernel)
            made = replace(frame, kernels=(kernel,), buffers=tuple(b for b in frame.buffers if b.name in named))
        alike = self._alike.setdefault((type(made), kernel.name, Same(earlier)), [])
        for other in reversed(alike):
            if identical(other, made):
                return other
        alike.append(made)
        del alike[:-_ALIKE]
        return made


def _same_objects(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


@by_identity(512)  # modules have kernels in common
def _names(kernel: Any) -> frozenset[str]:
    """Every text in ``kernel``."""
    named = set[str]()
    _add_names(kernel, named)
    return frozenset(named)


def _add_names(x: Any, out: set[str]) -> None:
    """Add every text in ``x``, among them the names of all buffers that it reads or writes."""
    if type(x) in _WITHOUT_TEXT:
        return
    if isinstance(x, str):
        out.add(x)
    elif isinstance(x, tuple):
        for part in x:
            _add_names(part, out)
    elif isinstance(x, _EXPRESSIONS):
        out.update(e.buffer for e in loads(x))
    elif isinstance(x, Mapping):
        for part in x.values():
            _add_names(part, out)
    else:
        for name in getattr(type(x), "__dataclass_fields__", ()):
            _add_names(getattr(x, name), out)
