"""Runs a compiled spec on arrays, by the interpreter of a level or on the GPU.

Arrays are in working form (float64, int64, bool; see :mod:`nautilus.core.numerics`) and rounded to the declared types;
they are converted to raw storage only for the GPU.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nautilus.core.buffers import Buffer, extents, show_shape
from nautilus.core.errors import InputError, first_line
from nautilus.core.expr.nodes import Param
from nautilus.core.index.sizes import Extent
from nautilus.core.index.strides import is_stride_param, pad
from nautilus.core.numerics import Array, from_storage, round_to, storage_array
from nautilus.core.records import dataclass
from nautilus.core.types import FORMATS, DType, Number, integer_limits
from nautilus.passes.compilation import Result
from nautilus.passes.loading import load
from nautilus.runtime.capacity import at_capacity, at_sizes
from nautilus.runtime.facts import check_facts
from nautilus.runtime.launch import Argument, Launch, Plan, run_plan

if TYPE_CHECKING:
    from nautilus.ma_tile.ir.ops import MemModule
    from nautilus.runtime.nvrtc import Compiled

#: stage -> interpreter ``f(module, inputs, scalars) -> outputs``, which may return temps too
INTERPRETERS: Mapping[str, str] = {
    "spec": "nautilus.frontend.interp:run_spec",
    "scalar": "nautilus.scalar.interp.program:run_program",
    "vr-tile": "nautilus.vr_tile.interp:run_module",
    "ma-tile": "nautilus.ma_tile.interp.module:run_module",
}


@dataclass(frozen=True, slots=True)
class Slot:
    """An array argument. A Param in ``shape`` is a size known only at launch, and one in ``strides`` a stride."""

    name: str
    dtype: DType
    shape: tuple[Extent, ...]
    strides: tuple[Extent, ...] | None = None


@dataclass(frozen=True, slots=True)
class Interface:
    """The signature of a spec.  ``scalars``: name, type and default, including runtime sizes."""

    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    scalars: tuple[tuple[str, DType, Number | None], ...]


def interface(result: Result, stage: str) -> Interface:
    """The signature of the module of ``stage``; for ``cuda``, of the MA-tile module."""
    module = result.modules["ma-tile" if stage == "cuda" else stage]
    if hasattr(module, "definitions"):  # a Spec
        inputs, outputs = module.inputs, module.outputs
        scalars = [(s.name, s.dtype, s.default) for s in module.scalars]
        scalars += [(d.name, DType.I32, None) for d in module.runtime_dims]
        scalars += [(p.name, p.dtype, None) for p in module.stride_params]
    else:
        inputs = [b for b in module.buffers if b.space.value == "input"]
        outputs = [b for b in module.buffers if b.space.value == "output"]
        scalars = [(p.name, p.dtype, p.default) for p in module.params]
    made = [tuple(_slot(t) for t in ts) for ts in (inputs, outputs)]
    return Interface(made[0], made[1], tuple(scalars))


def _slot(t: Any) -> Slot:
    return Slot(t.name, t.dtype, getattr(t, "array_shape", t.shape), getattr(t, "array_strides", t.strides))


def numbers(signature: Interface, given: Mapping[str, str]) -> dict[str, Number]:
    """Scalar values from the command line and defaults.  Raises InputError for unknown names and invalid values."""
    known = {name: dtype for name, dtype, _ in signature.scalars}
    if unknown := sorted(set(given) - set(known)):
        raise InputError(f"unknown scalar {unknown[0]!r}; scalars: {', '.join(known) or 'none'}")
    out: dict[str, Number] = {}
    for name, dtype, default in signature.scalars:
        if name in given:
            out[name] = _number(name, given[name], dtype)
        elif default is not None:
            out[name] = default
    return out


def _number(name: str, text: str, dtype: DType) -> Number:
    try:
        if dtype is DType.BOOL:
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        value = int(text, 0) if dtype.is_int else float(text)
        if dtype.is_int and int(round_to(np.asarray(value), dtype)) != value:
            raise ValueError
        return value
    except (ValueError, KeyError, OverflowError):
        raise InputError(f"--set {name}={text}: not a value of type {dtype}") from None


def arguments(
    signature: Interface, given: Mapping[str, str], seed: int, numbers: Mapping[str, Number]
) -> tuple[dict[str, Array], dict[str, Number]]:
    """Input arrays, read from .npy or .npz (rounded to the declared type) or random, and all scalar values.

    Sizes known only at launch are in ``numbers`` or shown by a given array; strides are in ``numbers`` or leave gaps.
    Random integers lie below the smallest extent of the spec, so that they index every tensor.  An input's values
    depend on ``seed``, its name and its shape alone.  Raises InputError.
    """
    names = [s.name for s in signature.inputs]
    if unknown := sorted(set(given) - set(names)):
        raise InputError(f"unknown input {unknown[0]!r}; inputs: {', '.join(names) or 'none'}")
    read = {s.name: _read(s, Path(given[s.name])) for s in signature.inputs if s.name in given}
    known = dict(numbers)
    for slot in signature.inputs:
        for extent, size in zip(slot.shape, read[slot.name].shape if slot.name in read else (), strict=False):
            if isinstance(extent, Param) and known.setdefault(extent.name, size) != size:
                raise InputError(f"{slot.name} has {extent.name} = {size}, but {extent.name} is {known[extent.name]}")
    rows = {p.name for s in (*signature.inputs, *signature.outputs) for p in s.strides or () if is_stride_param(p)}
    for name, _, _ in signature.scalars:
        if name not in known and name not in rows:
            raise InputError(f"scalar {name!r} has no value and no default; give one with --set {name}=VALUE")
    for slot in (*signature.inputs, *signature.outputs):
        if slot.strides is not None:
            pad(slot.shape, slot.strides, known)
    shapes = {s.name: _fixed(s, known) for s in (*signature.inputs, *signature.outputs)}
    limit = max(1, min((n for shape in shapes.values() for n in shape), default=1))
    out: dict[str, Array] = {}
    for slot in signature.inputs:
        if slot.name in read:
            out[slot.name] = read[slot.name]
        else:
            rng = np.random.default_rng([seed, *slot.name.encode()])
            out[slot.name] = random_array(slot.dtype, shapes[slot.name], rng, limit)
    return out, known


def random_array(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator, limit: int) -> Array:
    """Standard normal floats, small integers (below ``limit`` if they may be indices), uniform bools."""
    if dtype is DType.BOOL:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.is_int:
        low, high = (0, limit) if dtype.bits >= 32 else (max(integer_limits(dtype)[0], -8), 8)
        return np.asarray(rng.integers(low, high, shape))
    return round_to(rng.standard_normal(shape), dtype)


def _fixed(slot: Slot, numbers: Mapping[str, Number]) -> tuple[int, ...]:
    """The shape of ``slot`` with the values of sizes that are known only at launch."""
    shape = extents(slot.shape, numbers)
    if any(n < 0 for n in shape):
        raise InputError(f"a size of {slot.name} is {min(shape)}; sizes must be at least 0")
    return shape


def _read(slot: Slot, path: Path) -> Array:
    try:
        data: Any = np.load(path, allow_pickle=False)
        data = data[slot.name] if hasattr(data, "files") and slot.name in data.files else data
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # a damaged file makes numpy, zipfile and zlib raise errors of some ten types
        first = first_line(error)
        why = "it is no .npy or .npz file of numbers" if "allow_pickle" in first else first or type(error).__name__
        raise InputError(f"cannot read {path}: {why}") from error
    if hasattr(data, "files"):
        raise InputError(f"{path} has no array {slot.name!r}; arrays: {', '.join(data.files) or 'none'}")
    if data.dtype.kind not in "fiub":
        raise InputError(f"{path} has elements of type {data.dtype}, which are not numbers")
    fits = len(data.shape) == len(slot.shape) and all(
        not isinstance(want, int) or want == have for want, have in zip(slot.shape, data.shape, strict=True)
    )
    if not fits:
        raise InputError(f"{path} has shape {_shape(data.shape)}; {slot.name} needs {_shape(slot.shape)}")
    return _exact(data, slot, path) if slot.dtype.is_int or slot.dtype is DType.BOOL else round_to(data, slot.dtype)


def _shape(extents: Sequence[Extent]) -> str:
    return f"[{show_shape(extents)}]"


def _exact(data: Array, slot: Slot, path: Path) -> Array:
    """``data`` as integers or bools.  Raises InputError for a value that the type cannot represent exactly."""
    with np.errstate(all="ignore"):
        made = round_to(data, slot.dtype)
        wrong = np.asarray(made != data)
    if wrong.any():
        raise InputError(f"{path} contains {data[wrong].flat[0]}, which is not a value of type {slot.dtype}")
    return made


def run(
    result: Result,
    stage: str,
    inputs: Mapping[str, Array],
    scalars: Mapping[str, Number],
    cubin: Compiled | None = None,
) -> dict[str, Array]:
    """Outputs by name, in working form, of the kernel at ``stage``: in its interpreter, or for ``cuda`` on the GPU.

    ``cubin``: the machine code, where the caller has it.  Raises ToolchainError (GPU) or the errors of the interpreter.
    """
    signature = interface(result, stage)
    if stage == "cuda":
        return run_cuda(result, inputs, scalars, cubin)
    module, interpret = result.modules[stage], load(INTERPRETERS[stage])
    check_facts((f for f in module.facts if not getattr(f, "promised", False)), scalars)
    if stage == "spec":  # its interpreter takes sizes and scalars apart
        dims = {d.name for d in module.runtime_dims}
        sizes = {k: int(v) for k, v in scalars.items() if k in dims}
        found = interpret(module, inputs, {k: v for k, v in scalars.items() if k not in dims}, sizes)
    else:
        found = interpret(module, inputs, scalars)
    return {s.name: np.asarray(found[s.name]) for s in signature.outputs}


def launched_here(result: Result, scalars: Mapping[str, Number], cubin: Compiled) -> MemModule:
    """The module of ``result`` that the GPU of this machine launches at ``scalars``, which has sizes and strides.

    Like the launcher, it asks the GPU about the kernels of ``cubin``.  Raises ToolchainError.
    """

    def co_resident(module: MemModule) -> bool:
        from nautilus.runtime.launch import runs_all_blocks

        return runs_all_blocks(cubin.data, plan_of(module, scalars))

    return result.launched(scalars, co_resident)


def run_cuda(
    result: Result, inputs: Mapping[str, Array], scalars: Mapping[str, Number], cubin: Compiled | None = None
) -> dict[str, Array]:
    """Run the kernels on the GPU; without ``cubin`` NVRTC compiles them.  Raises ToolchainError if that fails."""
    from nautilus.runtime.device import open_device
    from nautilus.runtime.nvrtc import build

    open_device()  # a missing device is an error before the slow compilation
    arch = result.context.arch
    built = cubin or build(result.cuda_module, arch)
    module = launched_here(result, scalars, built)
    plan = plan_of(module, scalars)
    given = at_capacity(module, inputs, runtime_sizes(module, scalars))
    raw = {a.name: storage_array(given[a.name], a.dtype) for a in plan.by_role("input")}
    outputs = run_plan(built.data, plan, arch, raw, scalars)
    made = {a.name: from_storage(outputs[a.name], a.dtype) for a in plan.by_role("output")}
    return at_sizes(module, made, runtime_sizes(module, scalars))


def plan_of(module: Any, numbers: Mapping[str, Number] | None = None) -> Plan:
    """Launches and arguments of an MA-tile module; ``numbers`` has the values of runtime sizes.

    A kernel whose grid is empty is not launched.  Raises InputError for a size that is not given or out of range, and
    for a fact that does not hold.
    """
    module = load("nautilus.cuda.host.capacity:hosted")(module)
    sizes = runtime_sizes(module, numbers or {})
    symbol, counter = load("nautilus.cuda.names:kernel_symbol"), load("nautilus.cuda.ops.tile_scheduler:uses_counter")
    arguments_ = [_argument(b, sizes) for b in module.buffers]
    arguments_ += [Argument(p.name, p.dtype, (), "scalar") for p in module.params]
    names = tuple(a.name for a in arguments_)
    launches = []
    for k in module.kernels:
        (blocks,) = extents((k.launched,), sizes)
        if not blocks:
            continue
        grid, block = (blocks, 1, 1), (k.threads, 1, 1)
        maps = tuple(m.at(sizes) for m in load("nautilus.cuda.tensor_maps:kernel_maps")(module, k))
        together = max(k.cluster, k.spread)
        launches.append(
            Launch(symbol(module, k), grid, block, k.smem_bytes, names, maps, together, counter(k), k.pdl, k.team > 1)
        )
    return Plan(tuple(arguments_), tuple(launches))


def _argument(b: Buffer, sizes: Mapping[str, int]) -> Argument:
    strides = None if b.array_strides is None else extents(b.array_strides, sizes)
    return Argument(b.name, b.dtype, extents(b.array_shape, sizes), b.space.value, strides)


def runtime_sizes(module: Any, numbers: Mapping[str, Number]) -> dict[str, int]:
    """The runtime sizes of a module.  Raises InputError for one that is not given or out of range."""
    sizes = dict[str, int]()
    for p in module.params:
        if p.most is not None:
            if p.name not in numbers:
                raise InputError(f"the size of {p.name!r} is not given")
            size = sizes[p.name] = int(numbers[p.name])
            if not 0 <= size <= p.most:
                raise InputError(f"the size of {p.name!r} is {size}; allowed are 0 to {p.most}")
    check_facts(module.facts, numbers)
    return sizes


def npy_bytes(array: Array, dtype: DType | None = None) -> bytes:
    """The ``.npy`` file of an output in the closest numpy type (float32 where numpy has none)."""
    buffer = io.BytesIO()
    np.save(buffer, export(array, dtype))
    return buffer.getvalue()


def export(array: Array, dtype: DType | None) -> Array:
    """A working array in the numpy type of ``dtype``; bf16, tf32 and 8-bit floats become float32."""
    if dtype is None:
        return array
    own = storage_array(array, dtype)
    if FORMATS[dtype].numpy is None:
        return np.asarray(from_storage(own, dtype).astype(np.float32))
    return own


def summary(array: Array) -> dict[str, Any]:
    """Shape and statistics of an output for ``--json``."""
    values = array.astype(np.float64)
    finite = values[np.isfinite(values)]
    return {
        "shape": list(array.shape),
        "mean": float(finite.mean()) if finite.size else None,
        "min": float(finite.min()) if finite.size else None,
        "max": float(finite.max()) if finite.size else None,
        "not_finite": int(prod(array.shape) - finite.size),
    }


def summary_line(name: str, array: Array) -> str:
    """The summary of an output as a line of text."""
    s = summary(array)
    shape = ", ".join(map(str, s["shape"]))
    if s["mean"] is None:
        return f"{name}[{shape}]: no finite value"
    extra = f", {s['not_finite']} not finite" if s["not_finite"] else ""
    return f"{name}[{shape}]: mean {s['mean']:.6g}, min {s['min']:.6g}, max {s['max']:.6g}{extra}"
