"""A tuning parameter: one choice of a kernel, its values, and how it changes the plan.

A parameter of one option is called like the option.  It has the option's own values, unless fewer of them are worth a
measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan, option_of
from nautilus.planner.warpgroup import with_tiles

Apply = Callable[[KernelPlan, Any], KernelPlan]
MOST, RULE = "most", "rule"


@dataclass(frozen=True, slots=True)
class TuningParameter:
    """``values`` with the default among them. ``structural``: values that depend on tiles are computed again."""

    name: str
    values: tuple[Any, ...]
    default: Any
    apply: Apply
    structural: bool = False


def mapping_parameter(name: str, plan: KernelPlan, values: Iterable[Any] | None = None) -> TuningParameter:
    """A parameter for one option of the mapping; the plan's own value is among the values."""
    now = getattr(plan.mapping, name)

    def apply(p: KernelPlan, value: Any) -> KernelPlan:
        return with_mapping(p, **{name: value})

    return TuningParameter(name, including(_values(type(plan.mapping), name, values), now), now, apply)


def kernel_parameter(name: str, plan: KernelPlan, values: Iterable[Any] | None = None) -> TuningParameter:
    """A parameter for one option of the kernel; the plan's own value is among the values."""
    now, known = getattr(plan, name), _values(KernelPlan, name, values)
    return TuningParameter(name, including(known, now), now, lambda p, value: replace(p, **{name: value}))


def tile_parameter(
    name: str, axis: str, values: Iterable[int], plan: KernelPlan, structural: bool = False
) -> TuningParameter:
    """A parameter for the tile of one axis."""
    now = plan.axis(axis).tile
    return TuningParameter(
        name, including(values, now), now, lambda p, value: with_tiles(p, {axis: value}, p.mapping), structural
    )  # fmt: skip


def with_mapping(plan: KernelPlan, **values: Any) -> KernelPlan:
    """``plan`` with other options of its mapping."""
    return replace(plan, mapping=replace(plan.mapping, **values))


def including(values: Iterable[Any], now: Any) -> tuple[Any, ...]:
    """``values`` and ``now``, once each; numbers rise."""
    out = list(dict.fromkeys((*values, now)))
    if all(isinstance(v, int) and not isinstance(v, bool) for v in out):
        return tuple(sorted(out))
    return tuple(out)


def _values(cls: type[Any], name: str, fewer: Iterable[Any] | None) -> tuple[Any, ...]:
    """The values of an option that are searched. Raises ValueError for one that has no list of values."""
    if fewer is not None:
        return tuple(fewer)
    found = option_of(cls, name)
    if not (found.values or found.kind is bool):
        raise ValueError(f"{cls.__name__}.{name} has no list of values")
    return found.values or (False, True)
