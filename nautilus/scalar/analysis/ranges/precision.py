"""The precision of values: the types of the tensors that they are made from, and of the outputs that depend on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import Expr, Load, free_vars, loads
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def

#: Types that every 16-bit float holds exactly.
SHORT = frozenset({DType.I8, DType.U8, *(d for d in DType if d.is_float8)})
#: Types of at most 16 bits that are operands of matrix units.
NARROW = SHORT | {d for d in DType if d.is_half}
_DEPTH = 8


def sources(e: Expr, axes: frozenset[str], defs: Mapping[str, Def]) -> tuple[Load, ...]:
    """Elements of tensors of types in :data:`NARROW` that ``e`` is made from.

    That is, what it reads of them at all ``axes``, and what computed values that it reads there are made from.
    """
    return tuple(dict.fromkeys(_sources(e, axes, defs, _DEPTH)))


def _sources(e: Expr, axes: frozenset[str], defs: Mapping[str, Def], depth: int) -> Iterator[Load]:
    for ld in loads(e):
        if axes <= free_vars(ld) and ld.dtype in NARROW:
            yield ld
        elif axes <= free_vars(ld) and ld.buffer in defs and depth:
            yield from _sources(defs[ld.buffer].value, frozenset(), defs, depth - 1)


def feeding_wide_outputs(defs: Mapping[str, Def]) -> frozenset[str]:
    """The definitions on which an output depends that is no float of at most 16 bits."""
    todo = [d for d in defs.values() if d.buffer.space is Space.OUTPUT and not _is_short(d.buffer.dtype)]
    found = {d.name for d in todo}
    while todo:
        read = {ld.buffer for ld in todo.pop().reads()} & defs.keys() - found
        found |= read
        todo += [defs[name] for name in read]
    return frozenset(found)


def _is_short(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits <= 16
