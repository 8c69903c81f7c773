"""``dce``: removes ops without readers, and carried values that only depend on themselves.

A loop without results and without stores is removed too, because every loop terminates.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import compress

from nautilus.core.expr.nodes import refs
from nautilus.core.records import dataclass
from nautilus.vr_tile.ir import ForOp, StoreOp, TileKernel, TileModule, TileOp, expressions, operands, results
from nautilus.vr_tile.rewriting import each_kernel


@dataclass(frozen=True, slots=True)
class Dce:
    """Remove dead ops."""

    name = "dce"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` without dead ops."""
        return each_kernel(module, clean)


def clean(k: TileKernel) -> TileKernel:
    """``k`` without dead ops."""
    body, _ = _block(k.body, set())
    return k if body == k.body else replace(k, body=body)


def _reads(op: TileOp) -> set[str]:
    names = {v.name for v in operands(op)}
    return names.union(*(refs(e) for e in expressions(op)))


def _block(body: Iterable[TileOp], live: set[str]) -> tuple[tuple[TileOp, ...], set[str]]:
    """The live ops of a block after which the values ``live`` are live, and the values that are live before it."""
    live = set(live)
    out: list[TileOp] = []
    for op in reversed(list(body)):
        if isinstance(op, ForOp):
            kept, inner = _loop(op, live)
            if kept is None:
                continue
            op, live = kept, live | inner
        elif not isinstance(op, StoreOp) and not any(r.name in live for r in results(op)):
            continue
        live |= _reads(op)
        out.append(op)
    return tuple(reversed(out)), live


def _loop(op: ForOp, live: set[str]) -> tuple[ForOp | None, set[str]]:
    """The loop with its live carried values, and the values from outside that its body reads."""
    keep = [r.name in live for r in op.results]
    while True:
        ends = {y.name for y, k in zip(op.yields, keep, strict=True) if k}
        body, inner = _block(op.body, ends)
        more = [k or arg.name in inner for k, (arg, _) in zip(keep, op.carried, strict=True)]
        if more == keep:
            break
        keep = more
    if not any(keep) and not body:
        return None, set()

    new = replace(
        op,
        results=tuple(compress(op.results, keep)),
        carried=tuple(compress(op.carried, keep)),
        yields=tuple(compress(op.yields, keep)),
        body=body,
    )
    return new, inner
