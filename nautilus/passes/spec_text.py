"""The checked Spec as text, for ``--dump-ir``: close to the language, with every range and type written.

It shows what the checker made of a file (functions expanded, sizes put in); it is not read back.
"""

from __future__ import annotations

from nautilus.core.expr import Param
from nautilus.core.text import format_expr, format_number
from nautilus.frontend.spec import Definition, Spec, Tensor


def format_spec(spec: Spec) -> str:
    """The text of ``spec``."""
    lines = [f"# {spec.name}"]
    for dim in spec.runtime_dims:
        bound = "" if dim.bound is None else f" <= {dim.bound}"
        lines.append(f"dim {dim.name} = runtime{bound}")
    lines += [_tensor("input", t) for t in spec.inputs]
    for s in spec.scalars:
        default = "" if s.default is None else f" = {format_number(s.default, s.dtype)}"
        lines.append(f"scalar {s.name}: {s.dtype}{default}")
    lines += [_tensor("output", t) for t in spec.outputs]
    lines.append("")
    lines += [_definition(d) for d in spec.definitions]
    return "\n".join(lines) + "\n"


def _tensor(word: str, t: Tensor) -> str:
    return f"{word} {t.name}: {t.dtype}[{', '.join(_extent(n) for n in t.shape)}]"


def _extent(n: int | Param) -> str:
    return str(n) if isinstance(n, int) else n.name


def _definition(d: Definition) -> str:
    axes = ", ".join(f"{a.name}: {_extent(a.extent)}" for a in d.axes)
    dtype = "" if d.dtype is None or d.is_output else f": {d.dtype}"
    return f"{d.name}{dtype}[{axes}] = {format_expr(d.expr)}"
