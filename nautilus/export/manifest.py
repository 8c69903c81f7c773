"""The launch manifest of a cubin: all that a program needs to launch its kernels, as JSON.

::

    manifest  := {format, name, arch, cubin, tensors, scalars, facts, dispatch, variants}
    tensor    := {name, role: "input" | "output", dtype, shape: [extent...], strides: [extent...], strided,
                  itemsize, alignment}                         -- strides in elements; strided: not row-major
    scalar    := {name, dtype, default, least, most, multiple, size} -- size: a size known at launch; null: no limit
    fact      := {text, condition}                             -- must hold at every launch
    dispatch  := int | {if: condition, then: dispatch, else: dispatch}       -- the number of the variant
    variant   := {name, workspace, tensor_maps, launches}
    workspace := {bytes: extent, alignment, temps: {name: offset}, counter: offset | null}
    map       := {name, tensor, dtype, sizes: [extent...], strides: [extent...], box: [int...], swizzle, promotion}
                                                               -- innermost axis first; strides in bytes
    condition := value | "scalar" | ["address", "tensor"] | ["co_resident", int] | [op, condition...]
    launch    := {kernel, grid, block, cluster, shared, programmatic, cooperative, parameters: [[kind, name]...]}
    extent    := int | "scalar" | [op, extent, extent]         -- add sub mul floordiv mod min max

A launch runs one variant, which the conditions of the dispatch choose by sizes, strides, addresses and the device.  All
blocks of a ``cooperative`` launch run at the same time, or it fails: the device has the attribute
CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, and its number of multiprocessors times the result of
cuOccupancyMaxActiveBlocksPerMultiprocessor, after the shared memory was allowed, is at least that of blocks.
``["co_resident", n]``: the device runs all cooperative launches of variant ``n``.  A manifest of one variant does not
ask; its loader refuses other devices.

The kinds of parameters are ``tensor`` and ``temp`` (an address), ``scalar`` (its value), ``map`` (the 128 bytes that
cuTensorMapEncodeTiled makes) and ``counter`` (the address of a 4-byte word that is 0 before the first launch; every
launch leaves it at 0).  Launches run in order, in one stream; one whose grid is 0 is left out.  A tensor without
elements may have address 0; its map then takes the address of an output.  ``cubin`` is the
SHA-256 of the file that the manifest belongs to.  ``specs/examples/load_manifest.py`` is a loader.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from nautilus import __version__
from nautilus.core.buffers import Buffer, ScalarParam, Space, TensorMap
from nautilus.core.errors import InternalError
from nautilus.core.expr.nodes import Const, Expr, Op, Param
from nautilus.core.index.sizes import Extent, as_extent
from nautilus.core.index.strides import row_major
from nautilus.core.schedule.dispatch import Dispatch, Threshold
from nautilus.core.types import FORMATS, DType
from nautilus.cuda.host.capacity import hosted
from nautilus.cuda.host.choice import Choice
from nautilus.cuda.host.workspace import ALIGNMENT, WORKSPACE_ALIGNMENT, workspace_bytes, workspace_offsets
from nautilus.cuda.names import kernel_symbol
from nautilus.cuda.ops.tile_scheduler import uses_counter
from nautilus.cuda.tensor_maps import kernel_maps
from nautilus.ma_tile.ir.ops import MemKernel, MemModule

FORMAT = 4


def manifest(choice: Choice, cubin: bytes) -> dict[str, Any]:
    """The manifest of the variants of ``choice``, whose machine code is ``cubin``."""
    module, free = hosted(choice.whole), {b.name for b in choice.checked()[0]}
    return {
        "format": FORMAT,
        "nautilusc": __version__,
        "name": module.name,
        "arch": module.target,
        "cubin": hashlib.sha256(cubin).hexdigest(),
        "tensors": [_tensor(b, b.name in free or not b.shape) for b in module.buffers if b.space is not Space.TEMP],
        "scalars": [_scalar(p) for p in module.params],
        "facts": [{"text": f.said, "condition": condition(f.condition)} for f in module.facts],
        "dispatch": dispatch(choice),
        "variants": [_variant(m) for m in choice.hosts],
    }


def dispatch(choice: Choice) -> Any:
    """How a launch finds the number of its variant."""
    tensors, strides = choice.checked()
    asked = [["eq", ["mod", ["address", b.name], ALIGNMENT], 0] for b in tensors]
    asked += [["eq", ["mod", p.name, p.multiple], 0] for p in strides]
    by_size = _tree(choice, choice.dispatch)
    if not asked:
        return by_size
    return {"if": _all(asked), "then": by_size, "else": _tree(choice, len(choice.sized))}


def _tree(choice: Choice, tree: Dispatch) -> Any:
    if isinstance(tree, int):
        last = len(choice.modules) - 1
        return {"if": ["co_resident", tree], "then": tree, "else": last} if tree in choice.waiting else tree
    if isinstance(tree, Threshold):
        asked: list[Any] = ["le", tree.size, tree.most]
    else:
        asked = _all([["eq", ["mod", name, by], 0] for name, by in tree.divisors])
    return {"if": asked, "then": _tree(choice, tree.within), "else": _tree(choice, tree.beyond)}


def _all(conditions: Sequence[list[Any]]) -> list[Any]:
    """The conjunction of ``conditions``."""
    *rest, last = conditions
    return ["and", rest[0], _all(conditions[1:])] if rest else last


def _variant(module: MemModule) -> dict[str, Any]:
    offsets, end = workspace_offsets(module)
    counter = any(uses_counter(k) for k in module.kernels)
    return {
        "name": module.name,
        "workspace": {
            "bytes": extent(workspace_bytes(module)),
            "alignment": WORKSPACE_ALIGNMENT,
            "temps": {name: extent(offset) for name, offset in offsets.items()},
            "counter": extent(end) if counter else None,
        },
        "tensor_maps": [_map(f"{k.name}.{m.name}", m, module) for k in module.kernels for m in kernel_maps(module, k)],
        "launches": [_launch(module, k) for k in module.kernels],
    }


def manifest_text(choice: Choice, cubin: bytes) -> str:
    """The file: a line for each tensor, map and launch."""
    return _lines(manifest(choice, cubin), "") + "\n"


def _lines(value: Any, indent: str) -> str:
    """``value`` as JSON; objects that hold lists of objects take several lines."""
    if isinstance(value, list) and any(isinstance(v, dict) for v in value):
        return "[\n" + ",\n".join(f"{indent} {_lines(v, indent + ' ')}" for v in value) + f"\n{indent}]"
    if isinstance(value, dict) and any(isinstance(v, list) and v and isinstance(v[0], dict) for v in value.values()):
        rows = (f"{indent} {json.dumps(k)}: {_lines(v, indent + ' ')}" for k, v in value.items())
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    return json.dumps(value)


def _tensor(b: Buffer, free: bool) -> dict[str, Any]:
    """``free``: a variant takes any address."""
    strides = row_major(b.array_shape) if b.array_strides is None else b.array_strides
    return {
        "name": b.name,
        "role": b.space.value,
        "dtype": str(b.dtype),
        "shape": [extent(n) for n in b.array_shape],
        "strides": [extent(n) for n in strides],
        "strided": b.array_strides is not None,
        "itemsize": b.dtype.bytes,
        "alignment": b.dtype.bytes if free else ALIGNMENT,
    }


def _scalar(p: ScalarParam) -> dict[str, Any]:
    limited = p.most is not None
    return {
        "name": p.name,
        "dtype": str(p.dtype),
        "default": p.default,
        "least": p.least if limited else None,
        "most": p.most,
        "multiple": p.multiple if limited else None,
        "size": limited and p.dtype is DType.I32,
    }


def _map(name: str, m: TensorMap, module: MemModule) -> dict[str, Any]:
    filled = {p.name: p.multiple for p in module.params if p.most is not None and p.dtype is DType.I32}
    return {
        "name": name,
        "tensor": m.buffer,
        "dtype": FORMATS[m.dtype].tensor_map,
        "sizes": [extent(n, filled) for n in m.sizes],
        "strides": [extent(n, filled) for n in m.strides],
        "box": list(m.box),
        "swizzle": m.swizzle,
        "promotion": m.promotion,
    }


def _launch(module: MemModule, k: MemKernel) -> dict[str, Any]:
    parameters = [("temp" if b.space is Space.TEMP else "tensor", b.name) for b in module.buffers]
    parameters += [("scalar", p.name) for p in module.params]
    parameters += [("map", f"{k.name}.{m.name}") for m in kernel_maps(module, k)]
    parameters += [("counter", "")] * uses_counter(k)
    return {
        "kernel": kernel_symbol(module, k),
        "grid": [extent(as_extent(k.launched)), 1, 1],
        "block": [k.threads, 1, 1],
        "cluster": [max(k.cluster, k.spread), 1, 1],
        "shared": k.smem_bytes,
        "programmatic": k.pdl,
        "cooperative": k.team > 1,
        "parameters": [list(p) for p in parameters],
    }


def extent(e: Extent, filled: dict[str, int] | None = None) -> Any:
    """``e`` as JSON. ``filled``: the value that takes the place of a size of 0, because a map has no empty axis.

    Raises InternalError.
    """
    match e:
        case int():
            return e
        case Const(value=value):
            return int(value)
        case Param(name=name):
            return ["max", name, filled[name]] if filled and name in filled else name
        case Op(op=op, args=(a, b)):
            return [op, extent(a, filled), extent(b, filled)]
    raise InternalError(f"no extent: {e!r}")


def condition(e: Expr) -> Any:
    """A condition on scalars as JSON: ``[op, argument...]``; a cast is called by its type. Raises InternalError."""
    match e:
        case Const(value=value):
            return value
        case Param(name=name):
            return name
        case Op(op="cast", args=(a,)):
            return [str(e.dtype), condition(a)]
        case Op(op=op, args=args):
            return [op, *map(condition, args)]
    raise InternalError(f"no condition: {e!r}")
