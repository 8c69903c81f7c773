"""A spec in two parts, for a library that computes the second part only.

The cut is where the spec states the element type of an intermediate tensor, such as normalised queries in f16: a user
of the library computes these tensors first, in a kernel of their own, and passes them to the call.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.expr.nodes import Load, Op, walk
from nautilus.frontend.spec import Definition, Spec, Tensor


def stages(spec: Spec) -> tuple[Spec, Spec] | None:
    """The part that computes the intermediate tensors with a stated type, and the part that reads them as inputs.

    None where no intermediate tensor has a stated type, and for recurrences.
    """
    cut = [d for d in spec.definitions if d.dtype is not None and not d.is_output]
    if not cut or any(d.recurrence is not None for d in spec.definitions):
        return None
    made = tuple(Tensor(d.name, d.dtype, d.shape) for d in cut if d.dtype is not None)
    names = {d.name for d in cut}
    before = _needed(spec, names)
    first = tuple(_output(d) if d.name in names else d for d in spec.definitions if d.name in before)
    if any(d.is_output and d.name not in names for d in first):
        return None
    last = tuple(d for d in spec.definitions if d.name not in before)
    # what the second part reads of the first one must be a tensor of the cut
    read = {n.buffer for d in last for n in walk(d.expr) if isinstance(n, Load)}
    if read & (before - names):
        return None
    head = replace(spec, name=f"{spec.name}_first", outputs=made, definitions=first, facts=(), family="")
    tail = replace(spec, name=f"{spec.name}_last", inputs=(*spec.inputs, *made), definitions=last, facts=(), family="")
    return head, tail


def _needed(spec: Spec, names: set[str]) -> set[str]:
    """``names`` and the definitions that they read."""
    found = set(names)
    for d in reversed(spec.definitions):
        if d.name in found:
            found |= {n.buffer for n in walk(d.expr) if isinstance(n, Load)}
    return {d.name for d in spec.definitions if d.name in found}


def _output(d: Definition) -> Definition:
    """``d`` as an output, whose expression has no cast around it."""
    e = d.expr
    inner = e.args[0] if isinstance(e, Op) and e.op == "cast" else e
    return replace(d, expr=inner, is_output=True)
