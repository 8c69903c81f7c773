"""Printing of ops that make a fragment of the registers of others.

``unpack`` makes the elements of one or of two bytes at a time (:mod:`nautilus.ma_tile.ir.unpack`); slices, stacks and
windows select registers (:mod:`nautilus.ma_tile.ir.slices`).
"""

from __future__ import annotations

import struct

from nautilus.core.types import DType
from nautilus.cuda.ops.elementwise import pack_text
from nautilus.cuda.ops.movement import plus
from nautilus.cuda.writer import Printers, Writer
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.layout import slice_registers, window_registers
from nautilus.ma_tile.ir.unpack import UnpackOp, byte_steps, pair_steps

_BYTES = 4  # elements of 8 bits in a register


def print_unpack(w: Writer, op: UnpackOp) -> None:
    """Print an array of pairs: the bits of both halves in a float each, and multiply-adds."""
    dtype, layout = op.result.type.dtype, w.layout(op.result)
    if dtype is DType.I8:
        _print_bytes(w, op)
        return
    steps = pair_steps(op.form, op.bias, op.factor, dtype)
    assert steps is not None, "the verifier admits exact numbers only"
    source, packs = w.name(op.arg), w.array(op.arg).pack
    name, spelled = w.declare(op.result), w.array(op.result)
    in_words = w.layout(op.arg).registers > spelled.length
    fma = w.speller.use(f"fma_{dtype}x2")
    with w.registers("r", spelled.length) as r:
        word, byte = (f"{source}[{r} / 4]", f"{r} % 4") if packs == 4 else (f"{source}[{r}]", "0")
        if in_words:
            word, byte = f"{source}[{r}]", f"{w.lane} % 4"
        if op.form == "f4e2m1":
            bits = f"{w.speller.use(f'e2m1_bits_{dtype}')}({word}, {byte})"
        else:
            exponent = {DType.F16: 0x6400, DType.BF16: 0x4300}[dtype] | steps.flip
            bits = f"{w.speller.use('nibble_bits')}<{_twice(exponent)}>({word}, {byte})"
        plus = _twice(_bits(steps.plus, dtype))
        text = f"{fma}({bits}, {_twice(_bits(steps.times, dtype))}, {plus})"
        if op.zero is not None:
            text = f"{fma}({_pair(w, op, 'zero', r)}, {_twice(_bits(-1.0, dtype))}, {text})"
        if op.scale is not None:
            text = f"{fma}({text}, {_pair(w, op, 'scale', r)}, 0x80008000u)"
        w.line(f"{name}[{r}] = {text};")
    assert layout.registers == 2 * spelled.length


def _print_bytes(w: Writer, op: UnpackOp) -> None:
    """Print an array of integers of 8 bits, four to a register: those of two bytes."""
    steps = byte_steps(op.form, op.bias, op.factor)
    assert steps is not None, "the verifier admits exact numbers only"
    source, packs = w.name(op.arg), w.array(op.arg).pack
    name, spelled = w.declare(op.result), w.array(op.result)
    flip, less = (f"{n * 0x01010101:#010x}u" for n in steps)
    with w.registers("r", spelled.length) as r:
        two = (
            f"{source}[{r} / 2] >> {r} % 2 * 16"
            if packs == _BYTES
            else f"{source}[{r} * 2] | {source}[{r} * 2 + 1] << 8"
        )
        w.line(f"{name}[{r}] = {w.speller.use('nibble_bytes')}<{flip}, {less}>({two});")
    assert spelled.pack == _BYTES


def _pair(w: Writer, op: UnpackOp, field: str, r: str) -> str:
    """The elements of an operand for the two elements of pair ``r`` of the result."""
    frag, layout = getattr(op, field), w.layout(op.result)
    first = f"({r} * 2)" if r != "0" else "0"
    second = f"({r} * 2 + 1)" if r != "0" else "1"
    low, high = (w.element(frag, layout, at) for at in (first, second))
    return f"((u32){low} | (u32){high} << 16)"


def _bits(x: float, dtype: DType) -> int:
    """The bits of ``x``, which is a number of ``dtype``."""
    if dtype is DType.F16:
        return int(struct.unpack("<H", struct.pack("<e", x))[0])
    return int(struct.unpack("<I", struct.pack("<f", x))[0]) >> 16


def _twice(half: int) -> str:
    return f"{half << 16 | half:#010x}u"


def print_slice(w: Writer, op: ma.SliceOp) -> None:
    """Print an array of some registers of another array; nothing remains of it when the loops are unrolled."""
    chosen = slice_registers(w.layout(op.arg), w.layout(op.result), op.axis, op.start)
    assert chosen is not None, "the verifier admits slices inside each thread only"
    _print_chosen(w, op, chosen)


def print_window(w: Writer, op: ma.WindowOp) -> None:
    """Print an array of the registers of windows."""
    chosen = window_registers(w.layout(op.arg), w.layout(op.result), op.axis, (op.positions, op.terms), op.sizes)
    assert chosen is not None, "the verifier admits windows inside each thread only"
    _print_chosen(w, op, chosen)


def _print_chosen(w: Writer, op: ma.SliceOp | ma.WindowOp, chosen: tuple[int, ...]) -> None:
    source, name, spelled = w.name(op.arg), w.declare(op.result), w.array(op.result)
    pack = spelled.pack
    groups = [chosen[n * pack : (n + 1) * pack] for n in range(spelled.length)]
    whole = pack == w.array(op.arg).pack and all(
        g[0] % pack == 0 and g == tuple(range(g[0], g[0] + pack)) for g in groups
    )
    first = groups[0][0] // pack
    if whole and [g[0] // pack for g in groups] == list(range(first, first + spelled.length)):
        with w.registers("r", spelled.length) as r:
            w.line(f"{name}[{r}] = {source}[{plus(r, first)}];")
        return
    dtype = op.result.type.dtype
    for n, group in enumerate(groups):
        if whole:
            text = f"{source}[{group[0] // pack}]"
        else:
            parts = [w.element_at(op.arg, str(g)) for g in group]
            text = parts[0] if pack == 1 else pack_text(w, parts, dtype, dtype)
        w.line(f"{name}[{n}] = {text};")


def print_stack(w: Writer, op: ma.StackOp) -> None:
    """Print an array of the registers of several arrays; nothing remains of it when the loops are unrolled."""
    places: dict[int, str] = {}
    for n, arg in enumerate(op.args):
        chosen = slice_registers(w.layout(op.result), w.layout(arg), op.axis, n)
        assert chosen is not None, "the verifier admits stacks inside each thread only"
        places |= {r: w.element_at(arg, str(k)) for k, r in enumerate(chosen)}
    name, spelled, dtype = w.declare(op.result), w.array(op.result), op.result.type.dtype
    for n in range(spelled.length):
        parts = [places[n * spelled.pack + k] for k in range(spelled.pack)]
        w.line(f"{name}[{n}] = {parts[0] if spelled.pack == 1 else pack_text(w, parts, dtype, dtype)};")


PRINTERS: Printers = {
    UnpackOp: print_unpack, ma.SliceOp: print_slice, ma.StackOp: print_stack, ma.WindowOp: print_window,
}  # fmt: skip
