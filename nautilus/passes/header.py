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
from nautilus.core.text.words import counted
from nautilus.cuda.host.workspace import workspace_bytes
from nautilus.cuda.names import kernel_symbol
from nautilus.frontend.spec import Dim, Spec
from nautilus.ma_tile.ir.ops import MemKernel, MemModule
from nautilus.passes.arithmetic import arithmetic
from nautilus.passes.compilation import Variants
from nautilus.passes.manager import Context

_WIDTH = 112
_REPLAY = "without the comment marks, a file for --schedule"
_MEANING = (
    " (relative Frobenius norm, at most, against float64, on standard normal inputs;"
    " where terms cancel more than in those, relative to the terms)"
)


def header(
    module: MemModule, arch: str, precision: str, schedule: Schedule | None, spec: Spec | None,
    states_errors: bool = True,
) -> tuple[str, ...]:  # fmt: skip
    """The lines of the leading comment without comment marks. ``spec`` None: the compilation starts from a dump.

    ``states_errors``: error bounds are among them.
    """
    lines = [*_about(module, arch, precision, spec), *_scratch(module)]
    if spec is not None and states_errors:
        lines += ["", *_wrapped("error   ", _bounds(spec, precision, schedule) + _MEANING)]
    lines += ["", *(line for k in module.kernels for line in (*_launch(module, k), *_numbers(k)))]
    if schedule is not None:
        lines += ["", f"schedule ({_REPLAY})", *compact(schedule)]
    return tuple(lines)


def variants_header(found: Variants, module: MemModule, context: Context, spec: Spec) -> tuple[str, ...]:
    """The lines of the leading comment of a text with several variants; ``module``: the one without variants."""
    lines = _about(module, context.arch, context.precision, spec)
    stated = found.all if context.states_errors else ()
    bounds = {v.name: _bounds(spec, context.precision, v.schedule) for v in stated}
    for n, text in enumerate(dict.fromkeys(bounds.values())):
        names = ", ".join(name for name, bound in bounds.items() if bound == text)
        own = f" in {names}" if len(set(bounds.values())) > 1 else ""
        lines += [*([""] if n == 0 else []), *_wrapped("error   ", text + own + (_MEANING if n == 0 else ""))]
    lines += ["", *(f"variant {line}" for line in found.text()), ""]
    for v in found.all:
        lines += [line for k in v.module.kernels for line in (*_launch(v.module, k), *_numbers(k))]
        lines += _scratch(v.module)
    for v in found.all:
        lines += ["", f"schedule of {v.name} ({_REPLAY})", *compact(v.schedule)]
    return tuple(lines)


def _about(module: MemModule, arch: str, precision: str, spec: Spec | None) -> list[str]:
    """The name, the sizes and the arguments."""
    name = spec.name if spec is not None else module.name
    lines = [f"{_plain(name)}: made by nautilusc {__version__} for {arch}, precision {precision}.", ""]
    if spec is not None and spec.dims:
        lines += _wrapped("sizes   ", ", ".join(map(_size, spec.dims)))
    return [*lines, *_arguments(module, spec)]


def _bounds(spec: Spec, precision: str, schedule: Schedule | None) -> str:
    """The stated error bound of each output."""
    from nautilus.check.bound.stated import stated  # most commands write no header

    return "; ".join(f"{n} {b.text}" for n, b in stated(spec, precision, schedule).items())


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


def _scratch(module: MemModule) -> list[str]:
    size = workspace_bytes(module)
    return _wrapped("scratch ", f"{show_shape((size,))} bytes") if size else []


def _size(d: Dim) -> str:
    known = d.value if d.value is not None else "in device memory" if d.device else "known at launch"
    return f"{d.name} = {known}" + (f", at most {d.bound}" if d.value is None and d.bound is not None else "")


def _launch(module: MemModule, kernel: MemKernel) -> list[str]:
    blocks = show_shape((as_extent(kernel.launched),))
    shared = f"{kernel.smem_bytes} bytes of dynamic shared memory"
    about = f"{kernel_symbol(module, kernel)}: {counted(blocks, 'block')} of {kernel.threads} threads, {shared}"
    return _wrapped("kernel  ", about)


def _numbers(kernel: MemKernel) -> list[str]:
    """The arithmetic of the matrix units in ``kernel``; nothing where it does not use them."""
    text = arithmetic(kernel)
    return _wrapped("        ", text) if text else []


def compact(schedule: Schedule) -> Iterator[str]:
    """``schedule`` as JSON with a few lines a kernel: :meth:`Schedule.from_json` reads them back."""
    raw = {name: value for name, value in asdict(schedule).items() if value is not None}  # None is the default
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
