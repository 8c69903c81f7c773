"""Certificates of lazy rescaling: no output depends on the choice of the reference.

There is one certificate for every accumulator of a loop: if the carried reference is offset by ``d_old``, the next one
by ``d_new``, and every carried value changes by its *form* (``vr_tile.analysis.invariance``), then the yielded value
changes by its form.  There is one for every store after the loop: if the last reference is offset by ``d``, the stored
value stays.  ``before`` is the value with all offsets substituted; ``after`` is the value changed by its own form.  The
bindings name the value and the replacement of each read of a reference or an accumulator, so that a checker can rebuild
both sides.

Tiles appear as reads ``name[axes]`` of values that the forms do not change, reductions as reductions.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Reduce, Var, rewrite
from nautilus.core.types import DType
from nautilus.vr_tile.analysis.invariance import FIXED, Form, Forms
from nautilus.vr_tile.ir import ConstOp, DotOp, ForOp, MapOp, ReduceOp, StoreOp, TileKernel, Value, walk_ops

_SKIPPED = ("cast", "narrow")


def certify(k: TileKernel, references: Mapping[str, int], bits: int) -> tuple[Certificate, ...]:
    """The certificates of kernel ``k`` for one family of references (loop -> slot)."""
    forms = Forms(references)
    forms.block(k.body)
    out: list[Certificate] = []
    for op in walk_ops(k.body):
        if isinstance(op, ForOp) and op.results and op.results[0].name in references:
            slot = references[op.results[0].name]
            leaves = {arg.name: forms.of(arg) for arg, _ in op.carried}
            leaves[op.yields[slot].name] = forms.of(op.yields[slot])
            for n, y in enumerate(op.yields):
                if n != slot and forms.of(y) != FIXED:
                    out.append(_certificate(op.results[n].name, y, forms, leaves, bits))
    ends = {r.name: forms.of(r) for op in walk_ops(k.body) if isinstance(op, ForOp) for r in op.results}
    for op in walk_ops(k.body):
        if isinstance(op, StoreOp):
            certificate = _certificate(op.buffer, op.value, forms, ends, bits)
            if len(certificate.bindings) > 1:
                out.append(certificate)
    return tuple(out)


def _certificate(subject: str, v: Value, forms: Forms, leaves: Mapping[str, Form], bits: int) -> Certificate:
    value = _Writer(forms, leaves)
    expr = value.expr(v)
    changed = {ld: _changed(ld, leaves[ld.buffer]) for ld in value.moving}
    return Certificate(
        rule="lazy-rescale",
        subject=subject,
        before=rewrite(expr, lambda n: changed.get(n) if isinstance(n, Load) else None),
        after=_changed(expr, forms.of(v)),
        bindings=(("value", expr), *((ld.buffer, to) for ld, to in changed.items())),
        notes=(f"a reference is at most 2^{bits} in the exponent below the maximum", "the identity has no stand-in"),
        proof="forms by dataflow: the value shifts or scales with the reference, or stays",
    )


def _changed(e: Expr, f: Form) -> Expr:
    """``e + sum w d`` or ``e * 2^(sum w d)``."""
    dtype = e.dtype
    total: Expr | None = None
    for name, weight in f.weights:
        term = Op("mul", (Const(weight, dtype), Var(f"d_{name}", dtype)), dtype)
        total = term if total is None else Op("add", (total, term), dtype)
    if total is None:
        return e
    return Op("add", (e, total), dtype) if f.kind == "shift" else Op("mul", (e, Op("exp2", (total,), dtype)), dtype)


class _Writer:
    """Values as expressions over reads of what does not change, and of ``leaves``."""

    def __init__(self, forms: Forms, leaves: Mapping[str, Form]) -> None:
        self.forms = forms
        self.leaves = leaves
        self.moving: dict[Load, None] = {}
        self.done: dict[str, Expr] = {}

    def expr(self, v: Value) -> Expr:
        if v.name not in self.done:
            self.done[v.name] = self._expr(v)
        return self.done[v.name]

    def _expr(self, v: Value) -> Expr:
        dtype = v.type.dtype if v.type.dtype in (DType.BOOL, DType.I32, DType.I64, DType.F64) else DType.F32
        read = Load(v.name, tuple(Var(a) for a in v.type.names), dtype)
        if self.leaves.get(v.name, FIXED) != FIXED:
            self.moving[read] = None
            return read
        op = self.forms.defs.get(v.name)
        match op:
            case ConstOp(value=value):
                return Const(value, dtype)
            case MapOp(op=name, args=args) if self._depends(v):
                if name in _SKIPPED:
                    return self.expr(args[0])
                known = "mul" if name == "mul_unless_one" else name
                return Op(known, tuple(self.expr(a) for a in args), dtype)
            case ReduceOp(combiner=combiner, arg=arg, axes=axes) if self._depends(v):
                return self._reduced(combiner, arg, axes, self.expr(arg), dtype)
            case DotOp(a=a, b=b, acc=acc, axes=axes) if self._depends(v):
                product = Op("mul", (self.expr(a), self.expr(b)), dtype)
                total = self._reduced("sum", a, axes, product, dtype)
                return total if acc is None else Op("add", (self.expr(acc), total), dtype)
        return read

    def _reduced(self, combiner: str, arg: Value, axes: tuple[str, ...], body: Expr, dtype: DType) -> Expr:
        sizes = {a.name: a.size for a in arg.type.axes}
        return Reduce(combiner, tuple(Axis(a, sizes[a]) for a in axes), None, body, dtype)

    def _depends(self, v: Value) -> bool:
        """Whether ``v`` is computed from a leaf that moves; its own form may be fixed all the same."""
        todo, seen = [v], set[str]()
        while todo:
            x = todo.pop()
            if self.leaves.get(x.name, FIXED) != FIXED:
                return True
            if x.name in seen:
                continue
            seen.add(x.name)
            op = self.forms.defs.get(x.name)
            match op:
                case MapOp(args=args):
                    todo += args
                case ReduceOp(arg=arg):
                    todo.append(arg)
                case DotOp(a=a, b=b, acc=acc):
                    todo += [a, b] if acc is None else [a, b, acc]
        return False
