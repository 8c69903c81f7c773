"""Printing of ``unpack``: the elements of one or of two bytes at a time (:mod:`nautilus.ma_tile.ir.unpack`)."""

from __future__ import annotations

import struct

from nautilus.core.types import DType
from nautilus.cuda.writer import Printers, Writer
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


PRINTERS: Printers = {UnpackOp: print_unpack}
