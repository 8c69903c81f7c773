"""Prints ``mma`` of f32 operands in two parts of tf32: three instructions a k-step, in sums of few terms.

The operands of a k-step are read from shared memory, or are fragments, and are split in registers.  The sum of
``DEPTH`` terms is in an array of its own, because an MMA cuts off what its accumulator does not hold; an f32 addition,
which rounds, adds it to the accumulator.  A warp in which such a sum is not finite computes it again by scalar
instructions, with elements of fragments from the lanes that have them.
"""

from __future__ import annotations

from nautilus.core.functions.parts import DEPTH
from nautilus.cuda.ops.mma import Tiling, accumulator, fetch_a, fetch_plain, print_scalar_steps, tiling
from nautilus.cuda.writer import Writer
from nautilus.ma_tile.ir import ops as ma


def print_parts(w: Writer, op: ma.MmaOp) -> None:
    """Print one ``mma`` op whose operands are both in shared memory, or both fragments."""
    acc = accumulator(w, op)
    t = tiling(w, op)
    layout = w.layout(op.result)
    most = DEPTH // t.instr.k
    steps = max(n for n in range(1, most + 1) if t.steps % n == 0)
    chunks = t.steps // steps
    with w.braces(""):
        if chunks > 1:
            w.line("#pragma unroll 1" if isinstance(op.a, ma.Slot) else "#pragma unroll")
        with w.braces(f"for (int first = 0; first < {chunks}; ++first)" if chunks > 1 else ""):
            first = f"first * {steps}" if chunks > 1 else "0"
            w.line(f"float part[{layout.registers}];")
            with w.registers("r", layout.registers) as r:
                w.line(f"part[{r}] = 0.0f;")
            w.line("#pragma unroll")
            with w.braces(f"for (int k = 0; k < {steps}; ++k)"):
                _step(w, op, t, f"({first} + k)" if chunks > 1 else "k")
            _again(w, op, first, steps, t)
            with w.registers("r", layout.registers) as r:
                w.line(f"{acc}[{r}] += part[{r}];")


def _step(w: Writer, op: ma.MmaOp, t: Tiling, k: str) -> None:
    """Read the operands of k-step ``k``, split them, and print the three products, the small ones first."""
    call, split = w.speller.use("mma_m16n8k8_tf32"), w.speller.use("split_tf32")
    w.line(f"u32 a[{t.row_tiles}][4], a_low[{t.row_tiles}][4];")
    w.line(f"u32 b[{t.col_tiles}][2], b_low[{t.col_tiles}][2];")
    if isinstance(op.a, ma.Slot) and isinstance(op.b, ma.Slot):
        fetch_a(w, op.a, t, {}, op.result.layout, k, "a")
        w.line("#pragma unroll")
        with w.braces(f"for (int n = 0; n < {t.col_tiles}; ++n)"):
            fetch_plain(w, op.b, t, op.result.layout, k, "b[n]", is_a=False)
    for x, name, tiles, registers in ((op.a, "a", t.row_tiles, 4), (op.b, "b", t.col_tiles, 2)):
        if isinstance(x, ma.Frag):
            with w.registers("x", tiles * registers) as r:
                element = w.element_at(x, f"({k} + {t.steps} * ({r} / {registers})) * {registers} + {r} % {registers}")
                w.line(f"{name}[{r} / {registers}][{r} % {registers}] = __float_as_uint({element});")
    for name, tiles, registers in (("a", t.row_tiles, 4), ("b", t.col_tiles, 2)):
        w.line("#pragma unroll")
        with w.braces(f"for (int x = 0; x < {tiles * registers}; ++x)"):
            at = f"[x / {registers}][x % {registers}]"
            w.line(f"{split}({name}{at}, {name}_low{at});")
    for a, b in (("a_low", "b"), ("a", "b_low"), ("a", "b")):
        w.line("#pragma unroll")
        with w.braces(f"for (int n = 0; n < {t.col_tiles}; ++n)"):
            w.line("#pragma unroll")
            with w.braces(f"for (int m = 0; m < {t.row_tiles}; ++m)"):
                w.line(f"{call}(&part[(n + {t.col_tiles} * m) * 4], {a}[m], {b}[n]);")


def _again(w: Writer, op: ma.MmaOp, first: str, steps: int, t: Tiling) -> None:
    """Compute ``part`` by scalar instructions if one of its elements is not finite."""
    count = w.layout(op.result).registers
    w.line("float bad[4] = {};  // several sums, so that an addition need not wait for the one before")
    with w.registers("r", count) as r:
        w.line(f"bad[{r} % 4] = fmaf(part[{r}], 0.0f, bad[{r} % 4]);")
    with w.braces("if (__any_sync(0xffffffffu, (bad[0] + bad[1]) + (bad[2] + bad[3]) != 0.0f))"):
        with w.registers("r", count) as r:
            w.line(f"part[{r}] = 0.0f;")
        if isinstance(op.a, ma.Frag) and isinstance(op.b, ma.Frag):
            _from_lanes(w, op.a, op.b, first, steps, t)
            return
        begin = f"({first}) * {t.instr.k}"
        print_scalar_steps(w, op, "part", begin, f"{begin} + {steps * t.instr.k}", "#pragma unroll 1")


def _from_lanes(w: Writer, a: ma.Frag, b: ma.Frag, first: str, steps: int, t: Tiling) -> None:
    """Add the products of fragments to ``part``, term by term, with the elements that other lanes have.

    PTX ISA, "Matrix Fragments for mma.m16n8k8": a lane has terms ``lane % 4`` and 4 more of rows ``lane / 4`` and 8
    more of A, the same terms of column ``lane / 4`` of B, and columns ``lane % 4 * 2`` and 1 more of the result.
    """
    w.line("#pragma unroll")
    with w.braces(f"for (int step = 0; step < {steps}; ++step)"):
        w.line("#pragma unroll 1")
        with w.braces(f"for (int k = 0; k < {t.instr.k}; ++k)"):
            w.line(f"float row[{2 * t.row_tiles}], column[{2 * t.col_tiles}];")
            with w.registers("r", 2 * t.row_tiles) as r:
                at = f"({first} + step + {t.steps} * ({r} / 2)) * 4 + {r} % 2"
                found = f"k < 4 ? {w.element_at(a, at)} : {w.element_at(a, f'{at} + 2')}"
                w.line(f"row[{r}] = __shfl_sync(0xffffffffu, {found}, lane / 4 * 4 + k % 4);")
            with w.registers("r", 2 * t.col_tiles) as r:
                at = f"({first} + step + {t.steps} * ({r} / 2)) * 2"
                found = f"k < 4 ? {w.element_at(b, at)} : {w.element_at(b, f'{at} + 1')}"
                w.line(f"column[{r}] = __shfl_sync(0xffffffffu, {found}, (lane % 4 * 2 + {r} % 2) * 4 + k % 4);")
            with w.registers("r", 4 * t.row_tiles * t.col_tiles) as r:
                m, n = f"{r} / {4 * t.col_tiles} * 2 + {r} / 2 % 2", f"{r} / 4 % {t.col_tiles} * 2 + {r} % 2"
                w.line(f"part[{r}] = fmaf(row[{m}], column[{n}], part[{r}]);")
