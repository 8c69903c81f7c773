"""Names of index variables that no argument has.

A loop variable and a number argument are two things, but both are plain names in the text of an IR.  The variable
that counts tiles of an axis ``b`` is ``b0`` (:mod:`nautilus.scalar.analysis.derived_names`), which no argument may be
either.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from nautilus.core.expr.nodes import Axis, Expr, Reduce, Var, rewrite, walk
from nautilus.core.text.names import unused
from nautilus.frontend.spec import Definition, Spec


def apart_from_arguments(spec: Spec, arguments: Collection[str]) -> Spec:
    """``spec`` with other names for index variables that have, or whose tiles would have, the name of an argument."""
    used = {a.name for d in spec.definitions for a in _axes(d)}
    names: dict[str, str] = {}
    taken = used | {d.name for d in spec.definitions} | set(spec.tensors) | set(arguments)
    for name in sorted(used):
        new = name
        while any(re.fullmatch(rf"{new}(0b*)?", argument) for argument in arguments):
            new = unused(f"{new}_", taken)
        if new != name:
            names[name] = new
            taken.add(new)
    if not names:
        return spec
    return replace(spec, definitions=tuple(_renamed(d, names) for d in spec.definitions))


def _axes(d: Definition) -> list[Axis]:
    reduced = [a for n in walk(d.expr) if isinstance(n, Reduce) for a in n.axes]
    return [*d.axes, *reduced]


def _renamed(d: Definition, names: Mapping[str, str]) -> Definition:
    def axes(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(replace(a, name=names.get(a.name, a.name)) for a in old)

    def rule(n: Expr) -> Expr | None:
        if isinstance(n, Var) and n.name in names:
            return replace(n, name=names[n.name])
        return replace(n, axes=axes(n.axes)) if isinstance(n, Reduce) else None

    return replace(d, axes=axes(d.axes), expr=rewrite(d.expr, rule))
