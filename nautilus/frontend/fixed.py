"""A Spec at given sizes: a number stands for each size that is known only at launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nautilus.core.expr.nodes import Axis, Const, Expr, Param, Reduce, rewrite
from nautilus.core.index.simplify import simplify
from nautilus.core.index.sizes import Extent, as_extent
from nautilus.core.index.sizes import Extent as AnyExtent
from nautilus.frontend.spec import Spec, Tensor, extent_at


def at_sizes(program: Spec, sizes: Mapping[str, int]) -> Spec:
    """``program`` with the numbers ``sizes`` for its runtime dims."""
    if not sizes:
        return program

    def extent(n: Extent) -> int:
        return extent_at(n, sizes)

    def axes(all_: Sequence[Axis]) -> tuple[Axis, ...]:
        return tuple(replace(a, extent=extent(a.extent)) for a in all_)

    def number(e: Expr) -> Expr | None:
        if isinstance(e, Param) and e.name in sizes:
            return Const(sizes[e.name], e.dtype)
        if isinstance(e, Reduce):
            return replace(e, axes=axes(e.axes))
        return None

    def tensors(all_: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(replace(t, shape=tuple(map(extent, t.shape)), strides=strides(t)) for t in all_)

    def strides(t: Tensor) -> tuple[AnyExtent, ...] | None:
        found = (n if isinstance(n, int) else as_extent(simplify(rewrite(n, number))) for n in t.strides or ())
        return None if t.strides is None else tuple(found)

    made = tuple(replace(d, axes=axes(d.axes), expr=rewrite(d.expr, number)) for d in program.definitions)
    dims = tuple(replace(d, value=sizes.get(d.name, d.value)) for d in program.dims)
    facts = tuple(replace(f, axes=axes(f.axes), condition=rewrite(f.condition, number)) for f in program.facts)
    inputs, outputs = tensors(program.inputs), tensors(program.outputs)
    return replace(program, inputs=inputs, outputs=outputs, dims=dims, definitions=made, facts=facts)
