"""What values are computed from, and what is computed for them alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from nautilus.vr_tile.ir import MapOp, TileOp, Value, operands


def elementwise(_: Value, op: TileOp) -> bool:
    """Whether ``op`` computes each element from elements of its operands."""
    return isinstance(op, MapOp)


def computed_from(
    values: Iterable[Value], defs: Mapping[str, TileOp], through: Callable[[Value, TileOp], bool] = elementwise
) -> Iterator[tuple[Value, TileOp | None]]:
    """``values``, and what they are computed from ``through`` some ops: each value once, before its operands.

    Beside a value stands the op that defines it, None where ``defs`` has none.
    """
    stack, seen = list(values)[::-1], set[str]()
    while stack:
        v = stack.pop()
        if v.name not in seen:
            seen.add(v.name)
            op = defs.get(v.name)
            yield v, op
            if op is not None and through(v, op):
                stack.extend(reversed(operands(op)))


def sources_of(v: Value, defs: Mapping[str, TileOp]) -> Iterator[TileOp]:
    """The ops other than elementwise ones from which ``v`` is computed, through elementwise work."""
    return (op for _, op in computed_from([v], defs) if op is not None and not isinstance(op, MapOp))


def computed_for(
    names: Iterable[str],
    defs: Mapping[str, TileOp],
    readers: Mapping[str, Sequence[TileOp]],
    takes: Callable[[Value], bool] = lambda _: True,
) -> frozenset[str]:
    """``names``, and the values that ``takes`` admits from which elementwise ops compute them and nothing else."""
    stack = list(names)
    found = set(stack)
    while stack:
        op = defs.get(stack.pop())
        for a in op.args if isinstance(op, MapOp) else ():
            alone = all(isinstance(r, MapOp) and r.result.name in found for r in readers.get(a.name, ()))
            if a.name not in found and alone and takes(a):
                found.add(a.name)
                stack.append(a.name)
    return frozenset(found)
