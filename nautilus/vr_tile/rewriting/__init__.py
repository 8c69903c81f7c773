"""Tools for passes on VR-tile kernels: renaming, and peephole rewriting in program order.

A *rule* gets one op (loops excepted) whose operands are already rewritten, and the
:class:`Peephole` to emit into; it gives the value that takes the op's place, of the same type, or None
to keep the op.  Ops that lose their last use stay for ``dce``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from nautilus.core.expr.nodes import Expr, Ref, refs, rewrite
from nautilus.core.ops import Kind, map_fields
from nautilus.vr_tile.ir import ConstOp, ForOp, TileKernel, TileModule, TileOp, Value, operands, results, walk_ops
from nautilus.vr_tile.lowering.emitter import Emitter

Env = Mapping[str, Value]


def each_kernel(m: TileModule, change: Callable[[TileKernel], TileKernel]) -> TileModule:
    """``m`` with every kernel changed; ``m`` itself where nothing did."""
    kernels = tuple(change(k) for k in m.kernels)
    return m if kernels == m.kernels else replace(m, kernels=kernels)


def each_op(op: TileOp, change: Callable[[TileOp], TileOp]) -> TileOp:
    """``op`` changed, and all ops in it where it is a loop."""
    new = change(op)
    return replace(new, body=tuple(each_op(x, change) for x in new.body)) if isinstance(new, ForOp) else new


def rename_expr(e: Expr, env: Env) -> Expr:
    """``e`` with refs replaced by name."""
    if refs(e).isdisjoint(env):
        return e

    def rule(n: Expr) -> Expr | None:
        return Ref(env[n.name].name, n.dtype, n.span) if isinstance(n, Ref) and n.name in env else None

    return rewrite(e, rule)


def rename(op: TileOp, env: Env) -> TileOp:
    """``op`` with the values it reads replaced; of a loop only its bounds and initial values."""
    if not env:
        return op

    def v(x: Value) -> Value:
        return env.get(x.name, x)

    def e(x: Expr) -> Expr:
        return rename_expr(x, env)

    new: TileOp = map_fields(op, {Kind.OPERAND: v, Kind.EXPR: e})
    return replace(new, yields=op.yields) if isinstance(new, ForOp) and isinstance(op, ForOp) else new


def copies(e: Emitter, body: tuple[TileOp, ...]) -> tuple[tuple[TileOp, ...], Env]:
    """Copies of the ops of ``body`` under other names, which ``e`` gives, and what their values are now.

    Loops are in no chain, so that some of them may be left out.
    """
    made: dict[str, Value] = {}
    for op in walk_ops(body):
        bound = (*results(op), *(arg for arg, _ in op.carried)) if isinstance(op, ForOp) else results(op)
        made |= {v.name: Value(e.fresh(v.type, v.name).name, v.type) for v in bound}

    def value(v: Value) -> Value:
        return made.get(v.name, v)

    def expr(e: Expr) -> Expr:
        return rename_expr(e, made)

    def copied(op: TileOp) -> TileOp:
        new: TileOp = map_fields(op, {Kind.RESULT: value, Kind.OPERAND: value, Kind.EXPR: expr})
        return replace(new, chain=None) if isinstance(new, ForOp) else new

    return tuple(each_op(op, copied) for op in body), made


class Peephole(Emitter):
    """Rewrites one kernel by a rule; see the module docstring."""

    def __init__(self, k: TileKernel) -> None:
        super().__init__({a.name: a for a in k.axes})
        self.kernel = k
        self.env: dict[str, Value] = {}
        self.defs: dict[str, TileOp] = {}
        self.here: set[str] = set()
        self.uses: Counter[str] = Counter()
        for op in walk_ops(k.body):
            self.uses.update(v.name for v in operands(op))
            if isinstance(op, ForOp):
                self.uses.update(y.name for y in op.yields)
            self.types |= {r.name: r.type for r in results(op)}
            if isinstance(op, ForOp):
                self.types |= {arg.name: arg.type for arg, _ in op.carried}

    def emit(self, op: TileOp) -> None:
        """Append ``op`` and note the values that it defines."""
        self.out.append(op)
        made = {r.name: op for r in results(op)}
        self.defs |= made
        self.here |= made.keys()

    def is_here(self, v: Value) -> bool:
        """Whether an op of the block that is being written defines ``v``."""
        return v.name in self.here

    def producer(self, v: Value) -> TileOp | None:
        """The op that defines ``v`` (None for a carried value)."""
        return self.defs.get(v.name)

    def constant(self, v: Value) -> int | float | bool | None:
        """The number that every element of ``v`` is, if it is known."""
        op = self.producer(v)
        return op.value if isinstance(op, ConstOp) else None

    def shared(self, v: Value) -> bool:
        """Whether ``v`` has several readers; a value made by the pass itself has one until it replaces another."""
        return self.uses[v.name] > 1

    def run(self, rule: Callable[[Peephole, TileOp], Value | None]) -> TileKernel:
        """The kernel rewritten by ``rule``; the same object where nothing changed."""
        body = self.block(self.kernel.body, rule)
        return self.kernel if body == self.kernel.body else replace(self.kernel, body=body)

    def block(self, body: tuple[TileOp, ...], rule: Callable[[Peephole, TileOp], Value | None]) -> tuple[TileOp, ...]:
        """``body`` rewritten by ``rule``, loops included."""
        outer, self.out = self.out, []
        outside, self.here = self.here, set()
        for old in body:
            op = rename(old, self.env)
            self.span = op.span
            if isinstance(op, ForOp):
                inner = self.block(op.body, rule)
                yields = tuple(self.env.get(y.name, y) for y in op.yields)
                self.emit(replace(op, body=inner, yields=yields))
                continue
            new = rule(self, op)
            if new is None:
                self.emit(op)
            else:
                (result,) = results(op)
                assert new.type == result.type, f"{new} does not stand for {result}"
                self.env[result.name] = new
                self.uses[new.name] += self.uses[result.name]
        done, self.out, self.here = tuple(self.out), outer, outside
        return done
