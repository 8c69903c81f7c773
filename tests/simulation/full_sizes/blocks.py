"""Some blocks of a kernel of full sizes: the printed text on the simulated GPU beside the MA-tile interpreter.

Each tensor that the kernel reads, temps of other kernels among them, holds random numbers, and a few blocks run in the
interpreter and in the text.  Elements of outputs that the interpreter made from inputs alone are compared with the Spec
in float64 too.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nautilus.check import compare
from nautilus.check.inputs import InputSet
from nautilus.core.buffers import Buffer, Space, extents
from nautilus.core.numerics import Array, round_to
from nautilus.core.types import DType
from nautilus.cuda.module import lower
from nautilus.ma_tile.interp.module import InterpError, run_blocks
from nautilus.ma_tile.interp.state.values import register_type
from nautilus.ma_tile.ir.ops import MemKernel, MemModule
from tests.simulation.full_sizes.alone import CUTS, Alone, alone
from tests.simulation.simulate import Fault, build, execute

#: The part of the largest number by which floats may differ, because sums have another order.
SHARE = 1 / 128


def found_differences(module: MemModule, kernel: MemKernel, inputs: Mapping[str, Array], seed: int) -> list[str] | None:
    """How the text of ``kernel`` differs on three blocks; None where they cannot be run.

    Raises Fault and HostError of the text, and InterpError for a kernel whose loops are whole.
    """
    for cut in CUTS:
        made = alone(module, kernel, cut)
        if isinstance(made, str):
            continue
        try:
            return differences(made, chosen_blocks(made, 3, seed), contents(made, inputs, seed), {}, seed)
        except Fault as error:
            if "no end after" not in str(error):
                raise
        except InterpError as error:
            if cut == "none" and "outside" not in str(error):  # random numbers that stand for positions may be outside
                raise
    return None


def contents(found: Alone, inputs: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """A content for each tensor that has one before the launch: those of ``inputs``, and random numbers."""
    rng = np.random.default_rng(seed)
    out: dict[str, Array] = {}
    for b in found.module.buffers:
        if b.space is Space.INPUT or b.name in found.given:
            known = inputs.get(b.name)
            out[b.name] = _random(rng, extents(b.array_shape, {}), b.dtype) if known is None else known
    return out


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape, np.int8).astype(np.bool_)
    if not dtype.is_float:
        return rng.integers(0, 4, shape, np.int8).astype(np.int64)
    made: Array = round_to(rng.standard_normal(shape, np.float32) * 0.5, dtype)
    return made


def chosen_blocks(found: Alone, count: int, seed: int) -> list[int]:
    """The last block, and others at random, as first blocks of clusters."""
    last = found.blocks // found.kernel.cluster
    r = random.Random(seed)
    numbers = [last - 1, *(r.randrange(last) for _ in range(count - 1))]
    return sorted({n * found.kernel.cluster for n in numbers})


def differences(
    found: Alone, blocks: Sequence[int], values: Mapping[str, Array], scalars: Mapping[str, Any], seed: int,
    timeout: float = 60.0,
) -> list[str]:  # fmt: skip
    """How the text of ``found`` differs from the interpreter on ``blocks``, whose tensors have the contents ``values``.

    Raises Fault, HostError, InterpError.
    """
    text, name = lower(found.module).code, found.kernel.name
    given = InputSet("random", seed, values, scalars, {})
    want = run_blocks(found.module, name, blocks, values, scalars, seed)
    with tempfile.TemporaryDirectory() as folder:
        program = build(text, found.module, given, Path(folder))
        got = execute(program, given, [seed], timeout, blocks=blocks, before=found.given)[0]
    out: list[str] = []
    for b in found.module.buffers:
        if b.space is Space.OUTPUT:
            out += _differ(b, got[b.name], want[b.name], values.get(b.name))
    return out


def _differ(b: Buffer, got: Array, want: Array, before: Array | None) -> list[str]:
    """A message where ``got`` is not ``want``, of which the interpreter wrote a part, over ``before`` or nothing."""
    if before is None:
        left = _same(want, _untouched(b.dtype))
        more = left & ~_same(got, _poison(b.dtype))
        if more.any() and b.dtype not in (DType.BOOL, DType.U8):  # of which results may be what nothing leaves
            return [f"{b.name}{_first(more)} is written by the text alone"]
        got = np.where(left, want, got)
    wrong = got != want
    if b.dtype.is_float:
        with np.errstate(all="ignore"):
            top = np.abs(want[np.isfinite(want)]).max(initial=0.0)
            wrong &= ~(np.abs(got - want) <= 2 * compare.spacing(want, b.dtype) + SHARE * top)
            wrong &= ~(np.isnan(got) & np.isnan(want))
    if not wrong.any():
        return []
    at = tuple(_first(wrong))
    return [f"{b.name}{list(at)} is {got[at]!r}, not {want[at]!r}; {int(wrong.sum())} differ"]


def _first(where: Array) -> list[int]:
    return [int(n) for n in np.unravel_index(int(np.argmax(where)), where.shape)]


def _same(a: Array, b: Any) -> Array:
    with np.errstate(invalid="ignore"):
        found = np.asarray(a == b)
    return found | (np.isnan(a) & np.isnan(b)) if a.dtype.kind == "f" else found


def _untouched(dtype: DType) -> Any:
    """What the interpreter leaves in an element."""
    if dtype is DType.BOOL:
        return False
    return np.nan if dtype.is_float else int(np.iinfo(register_type(dtype)).min)


def _poison(dtype: DType) -> Any:
    """What the simulated GPU leaves in an element."""
    if dtype is DType.BOOL:
        return True
    return np.nan if dtype.is_float else 255 if dtype is DType.U8 else -1
