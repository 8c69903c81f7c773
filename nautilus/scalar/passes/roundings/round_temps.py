"""``round-temps``: a temp whose elements are rounded, or are read rounded, has the type that they are rounded to.

A spec rounds an intermediate by a type before its name, ``A: bf16[i, j] = ..``, or by a conversion of the value, or by
one in each reader.  All three have the same results, and here the same program::

    A[i, j] = cast<f32>(cast<bf16>(S[i, j]))    ->  A: bf16 ;  A[i, j] = S[i, j]
    B[i, j] sum= A[i, k] * A[k, j]                  B[i, j] sum= cast<f32>(A[i, k]) * cast<f32>(A[k, j])

    S[i, j] sum= X[i, k] * Y[k, j]                  S[i, j] sum= X[i, k] * Y[k, j]
    B[i] sum= cast<f32>(cast<bf16>(S[i, j]))    ->  S_rounded: bf16 ;  S_rounded[i, j] = S[i, j]
                                                    B[i] sum= cast<f32>(S_rounded[i, j])

The store of a typed temp rounds as the conversion does (``grammar/README.md``, "Numbers"), so no bit changes.  Types
are those of floating-point numbers of 16 and of 8 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.nodes import Expr, Load, Op, Var, children, rewrite, walk
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.ir import Program, expressions, statements, with_expressions
from nautilus.scalar.rewriting import find_defs, fresh_name, map_kernels, map_statements, put_defs, with_body


@dataclass(frozen=True, slots=True)
class RoundTemps:
    """Give temps the types that their elements are rounded to."""

    name = "round-temps"

    def apply(self, program: Program) -> Program:
        """The program with such types; the same object where there are no such temps."""
        readers = _readers(program)
        for name in find_defs(program):
            d = find_defs(program)[name]
            if d.buffer.space is not Space.TEMP or d.buffer.dtype is not DType.F32 or d.at or d.scatter is not None:
                continue
            rounded = None if d.is_reduction or d.guard is not None else _conversion(d.value)
            if rounded is not None:
                program = _typed(program, replace(d, value=rounded.args[0]), rounded.dtype)
            elif (common := _common(readers.get(name, ()))) is not None:
                program = _with_rounded(program, d, common) if d.is_reduction else _typed(program, d, common)
        return program


def _conversion(e: Expr) -> Op | None:
    """The conversion to a narrow type of which ``e`` is the result, as f32."""
    if not (isinstance(e, Op) and e.op == "cast" and e.dtype is DType.F32):
        return None
    inner = e.args[0]
    narrow = isinstance(inner, Op) and inner.op == "cast" and _is_narrow(inner.dtype)
    return inner if narrow and isinstance(inner, Op) and inner.args[0].dtype is DType.F32 else None


def _is_narrow(t: DType) -> bool:
    return t.is_half or t.is_float8


def _readers(program: Program) -> Mapping[str, tuple[DType | None, ...]]:
    """By buffer: the narrow type that each of its loads is converted to, None for a load that is not."""
    found: dict[str, list[DType | None]] = {}
    for kernel in program.kernels:
        for loops, s in statements(kernel.body):
            for e in (*expressions(s), *(x for loop in loops for x in (loop.lo, loop.hi))):
                if isinstance(e, Load):
                    found.setdefault(e.buffer, []).append(None)
                for node in walk(e):
                    to = node.dtype if isinstance(node, Op) and node.op == "cast" and _is_narrow(node.dtype) else None
                    for load in (c for c in children(node) if isinstance(c, Load)):
                        found.setdefault(load.buffer, []).append(to)
    return {name: tuple(types) for name, types in found.items()}


def _common(types: tuple[DType | None, ...]) -> DType | None:
    """The type that all of at least one load are converted to."""
    return types[0] if types and all(t is types[0] for t in types) else None


def _typed(program: Program, d: Def, to: DType) -> Program:
    """``program`` with ``d``, of which the buffer has the type ``to``."""
    buffer = replace(d.buffer, dtype=to)
    made = put_defs(program, d.name, (replace(d, buffer=buffer),))
    return _reading(made, d.name, buffer, "")


def _with_rounded(program: Program, d: Def, to: DType) -> Program:
    """``program`` with one more temp, of type ``to``, for the readers of the reduction ``d``."""
    name = fresh_name(program, f"{d.name}_rounded")
    buffer = Buffer(name, to, d.buffer.shape, Space.TEMP, d.span)
    index = tuple(Var(a.name) for a in d.par)
    rounded = Def(name, buffer, d.par, (), None, Load(d.name, index, d.buffer.dtype, d.span), None, d.span)
    return _reading(put_defs(program, d.name, (d, rounded)), d.name, buffer, name)


def _reading(program: Program, old: str, buffer: Buffer, maker: str) -> Program:
    """``program`` whose loads of ``old`` are loads of ``buffer``, but for those of the kernel ``maker``."""

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer == old and e.dtype is not buffer.dtype:
            return Op("cast", (Load(buffer.name, e.index, buffer.dtype, e.span),), e.dtype, e.span)
        if isinstance(e, Op) and e.op == "cast" and e.dtype is buffer.dtype:
            (widened,) = e.args
            again = widened.args[0] if isinstance(widened, Op) and widened.op == "cast" else None
            return again if isinstance(again, Load) and again.buffer == buffer.name else None
        return None

    def mapped(e: Expr) -> Expr:
        return rewrite(e, rule)

    return map_kernels(
        program,
        lambda k: (
            k if k.name == maker else with_body(k, map_statements(k.body, lambda _, s: with_expressions(s, mapped)))
        ),
    )
