"""A spec as a function in Python: names of its tensors and scalars, its parameters, and extents as Python text."""

from __future__ import annotations

import keyword
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from nautilus.core.buffers import Buffer, ScalarParam, Space
from nautilus.core.expr.nodes import Param
from nautilus.core.index.sizes import Extent
from nautilus.core.index.strides import is_stride_param
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.cuda.host.extents import PYTHON, extent_text
from nautilus.ma_tile.ir.ops import MemModule

#: functions and types of Python that the files use: a function with such a name would replace it for all others
BUILTINS = frozenset({
    "RuntimeError", "ValueError", "any", "bool", "float", "getattr", "int", "list", "max", "min", "str", "tuple", "zip",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operator:
    """``names``: Python names of tensors and scalars. ``shown``: scalar -> the expression of tensors that shows it."""

    module: MemModule
    names: Mapping[str, str]
    shown: Mapping[str, str]

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """The input buffers in the order of the arguments."""
        return tuple(b for b in self.module.buffers if b.space is Space.INPUT)

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """The output buffers in the order of the results."""
        return tuple(b for b in self.module.buffers if b.space is Space.OUTPUT)

    @property
    def given(self) -> tuple[ScalarParam, ...]:
        """Scalars that are arguments of the operator; those with a default come last."""
        given = [p for p in self.module.params if p.name not in self.shown]
        return tuple(sorted(given, key=lambda p: p.default is not None))


def python(name: str, taken: set[str], reserved: Collection[str]) -> str:
    """A Python identifier that reads like ``name``, none of ``taken`` and ``reserved``."""
    clean = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    clean = f"v{clean}" if not clean or clean[0].isdigit() else clean
    return unused(f"{clean}_" if keyword.iskeyword(clean) or clean in reserved else clean, taken, first=2)


def operator(module: MemModule, reserved: Collection[str]) -> Operator:
    """The names of ``module``, none of ``reserved``, which the text around the function uses."""
    names, used = dict[str, str](), set[str]()
    for item in [*(b.name for b in module.buffers), *(p.name for p in module.params)]:
        names[item] = python(item, used, reserved)
        used.add(names[item])
    shown = dict[str, str]()
    multiples = {p.name: p.multiple for p in module.params}
    for b in module.buffers:
        for n, (extent, step) in enumerate(zip(b.array_shape, b.array_strides or b.array_shape, strict=True)):
            if b.space is Space.INPUT and isinstance(extent, Param):
                shown.setdefault(extent.name, f"{names[b.name]}.shape[{n}]")
            if b.space is not Space.TEMP and b.array_strides is not None and is_stride_param(step):
                shown.setdefault(step.name, f"stride({names[b.name]}, {n}, {multiples[step.name]})")
    return Operator(module, names, shown)


def function_name(module_name: str, reserved: Collection[str]) -> str:
    """The name of the function of a spec, none of ``reserved`` and of :data:`BUILTINS`."""
    return python(module_name, set(), {*reserved, *BUILTINS})


def defined(kind: str, names: Sequence[str], what: str) -> str:
    """The docstring of a file that defines functions of that kind."""
    said = ", ".join(f":func:`{n}`" for n in names)
    return f'"""The {kind}{"s" if len(names) > 1 else ""} {said} {what}."""'


def text(op: Operator, e: Extent) -> str:
    """Python text of an extent."""
    return extent_text(e, op.names, spelling=PYTHON)


def parameters(op: Operator, tensor: str) -> str:
    """The parameters of the function; ``tensor``: the type of tensors."""
    out = [f"{op.names[b.name]}: {tensor}" for b in op.inputs]
    for p in op.given:
        kind = "bool" if p.dtype is DType.BOOL else "int" if p.dtype.is_int else "float"
        default: Any = p.default
        out.append(f"{op.names[p.name]}: {kind}" + ("" if default is None else f" = {literal(default)}"))
    return ", ".join(out)


def literal(value: Any) -> str:
    """``value`` as a Python expression."""
    infinite = isinstance(value, float) and (value != value or value in (float("inf"), float("-inf")))
    return f'float("{value}")' if infinite else repr(value)


def returned(op: Operator, tensor: str) -> str:
    """The type that the function returns, as text."""
    tensors = [tensor] * len(op.outputs)
    return tensors[0] if len(tensors) == 1 else f"tuple[{', '.join(tensors)}]"


def sizes(op: Operator) -> Iterator[str]:
    """Lines that read the sizes that are known at launch."""
    for p in op.module.params:
        if ".shape[" in op.shown.get(p.name, ""):
            yield f"    {op.names[p.name]} = {op.shown[p.name]}"
