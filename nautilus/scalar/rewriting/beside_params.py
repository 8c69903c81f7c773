"""Loops whose names are those of params get other names.

Passes name new loops after the axes that they come from, such as ``j_in``, and a scalar or a size of the spec may have
that name.  A loop must not hide it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Expr, Var, substitute
from nautilus.core.text.names import fresh
from nautilus.scalar.ir import Loop, Program, Stmt, with_expressions
from nautilus.scalar.rewriting import with_body


def beside_params(
    program: Program, certificates: Sequence[Certificate]
) -> tuple[Program, tuple[Certificate, ...]]:  # fmt: skip
    """``program`` and ``certificates`` with new names for such loops; the same objects where there are none."""
    params = {p.name for p in program.params}
    loops = {name for k in program.kernels for name in _loops(k.body)} if params else set[str]()
    if loops.isdisjoint(params):
        return program, tuple(certificates)
    taken = params | loops
    names = {name: fresh(name, taken) for name in sorted(loops & params)}
    env: Mapping[str, Expr] = {old: Var(new) for old, new in names.items()}
    kernels = tuple(with_body(k, tuple(_renamed(k.body, names, env))) for k in program.kernels)
    return replace(program, kernels=kernels), tuple(_certificate(c, env) for c in certificates)


def _loops(body: Iterable[Stmt]) -> Iterator[str]:
    for s in body:
        if isinstance(s, Loop):
            yield s.var
            yield from _loops(s.body)


def _renamed(body: Iterable[Stmt], names: Mapping[str, str], env: Mapping[str, Expr]) -> Iterator[Stmt]:
    for s in body:
        if isinstance(s, Loop):
            lo, hi = substitute(s.lo, env), substitute(s.hi, env)
            yield replace(s, var=names.get(s.var, s.var), lo=lo, hi=hi, body=tuple(_renamed(s.body, names, env)))
        else:
            yield with_expressions(s, lambda e: substitute(e, env))


def _certificate(c: Certificate, env: Mapping[str, Expr]) -> Certificate:
    return replace(
        c,
        before=substitute(c.before, env),
        after=substitute(c.after, env),
        bindings=tuple((name, substitute(e, env)) for name, e in c.bindings),
        conditions=tuple(substitute(e, env) for e in c.conditions),
    )
