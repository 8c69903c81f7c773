"""The header of an emitted file: arguments, error bound, launches and schedule.

The header depends only on the Spec, the MA-tile module and the schedule, so equal inputs give equal bytes.  A
compilation that starts from a dump has no Spec, so its header omits the names of sizes, the defaults of scalars and
the error bound.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from textwrap import wrap
from typing import Any

from nautilus import __version__
from nautilus.core.buffers import Space, show_shape
from nautilus.core.index.sizes import as_extent
from nautilus.core.schedule import Schedule, said
from nautilus.core.text.tokens import format_number
from nautilus.cuda.host.workspace import workspace_bytes
from nautilus.cuda.names import kernel_symbol
from nautilus.frontend.spec import Dim, Spec
from nautilus.ma_tile.ir.ops import MemKernel, MemModule
from nautilus.passes.loading import load

_WIDTH = 112
_MEANING = (
    " (relative Frobenius norm, at most, against float64, on standard normal inputs;"
    " where terms cancel more than in those, relative to the terms)"
)


def header(
    module: MemModule, arch: str, precision: str, schedule: Schedule | None, spec: Spec | None
) -> tuple[str, ...]:
    """The lines of the leading comment without comment marks. ``spec`` None: the compilation starts from a dump."""
    name = spec.name if spec is not None else module.name
    lines = [f"{_plain(name)}: made by nautilusc {__version__} for {arch}, precision {precision}.", ""]
    if spec is not None and spec.dims:
        lines += _wrapped("sizes   ", ", ".join(map(_size, spec.dims)))
    lines += _arguments(module, spec)
    if spec is not None:
        stated = load("nautilus.check.bound.stated:stated")(spec, precision, schedule)
        lines += ["", *_wrapped("error   ", "; ".join(f"{n} {b.text}" for n, b in stated.items()) + _MEANING)]
    lines += ["", *(_launch(module, k) for k in module.kernels)]
    if schedule is not None:
        lines += ["", "schedule (without the comment marks, a file for --schedule)", *compact(schedule)]
    return tuple(lines)


def _arguments(module: MemModule, spec: Spec | None) -> Iterator[str]:
    """The launcher's arguments in order; arrays are row-major on the device."""
    for b in module.buffers:
        if b.space is not Space.TEMP:
            word = "input" if b.space is Space.INPUT else "output"
            strides = "" if b.array_strides is None else f" strides [{show_shape(b.array_strides)}]"
            yield f"{word:<8}{b.name}: {b.dtype}[{show_shape(b.array_shape)}]{strides}"
    defaults = {s.name: s.default for s in spec.scalars} if spec is not None else {}
    for p in module.params:
        default = defaults.get(p.name)
        yield f"scalar  {p.name}: {p.dtype}" + ("" if default is None else f" = {format_number(default, p.dtype)}")
    size = workspace_bytes(module)
    if size:
        yield f"scratch {show_shape((size,))} bytes"


def _size(d: Dim) -> str:
    known = d.value if d.value is not None else "known at launch"
    return f"{d.name} = {known}" + (f", at most {d.bound}" if d.value is None and d.bound is not None else "")


def _launch(module: MemModule, kernel: MemKernel) -> str:
    blocks = show_shape((as_extent(kernel.blocks),))
    shared = f"{kernel.smem_bytes} bytes of dynamic shared memory"
    return f"kernel  {kernel_symbol(module, kernel)}: {blocks} blocks of {32 * kernel.warps} threads, {shared}"


def compact(schedule: Schedule) -> Iterator[str]:
    """``schedule`` as JSON with a few lines a kernel: :meth:`Schedule.from_json` reads them back."""
    raw = asdict(schedule)
    kernels = raw.pop("kernels")
    for kernel, plan in zip(kernels, schedule.kernels, strict=True):  # what is left out has its default
        kernel["mapping"] = said(plan.mapping)
    yield from _wrapped("{", json.dumps(raw)[1:-1] + ', "kernels": [')
    for n, kernel in enumerate(kernels):
        last = n + 1 == len(kernels)
        fields = list(kernel.items())
        for k, (key, value) in enumerate(fields):
            end = "," if k + 1 < len(fields) else ("}]}" if last else "},")
            yield from _wrapped(" {" if k == 0 else "  ", f"{json.dumps(key)}: {json.dumps(value)}{end}")
    if not kernels:
        yield "]}"


def _wrapped(first: str, text: str) -> list[str]:
    indent = " " * len(first)
    return wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _plain(name: Any) -> str:
    """``name`` without characters that end the comment's line or continue it."""
    return "".join(c if c.isprintable() and c != "\\" else "_" for c in str(name))
