"""Device functions around one PTX instruction or one idiom: their text, and what they call."""

from __future__ import annotations

import math

from nautilus.core.common_ops import LEAST_FACTOR
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.cuda.ctypes import literal
from nautilus.cuda.text.matrix import mma


@dataclass(frozen=True, slots=True)
class Helper:
    """A device function's text and the helpers that it calls."""

    text: str
    needs: tuple[str, ...] = ()


def unary(name: str, ptx: str, comment: str) -> Helper:
    """A function of one float by the instruction ``ptx``."""
    body = f'float y; asm("{ptx} %0, %1;" : "=f"(y) : "f"(x)); return y;'
    return Helper(f"// {comment}\n__device__ __forceinline__ float {name}(float x) {{ {body} }}")


def binary(name: str, ptx: str, says: str) -> Helper:
    """A function of two floats by the instruction ``ptx``."""
    body = f'float y; asm("{ptx} %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y;'
    return Helper(f"// {says}\n__device__ __forceinline__ float {name}(float a, float b) {{ {body} }}")


def product_of_factors(dtype: str) -> Helper:
    """The product of two factors of a linear recurrence (``core.common_ops``)."""
    ctype, suffix = ("float", "f") if dtype == "f32" else ("double", "")
    least, inf = f"{LEAST_FACTOR!r}{suffix}", literal(math.inf, DType.F32 if dtype == "f32" else DType.F64)
    return Helper(
        "// No product of factors that are not 0 underflows, and inf says that a step forgets what is before it.\n"
        f"__device__ __forceinline__ {ctype} product_of_factors_{dtype}({ctype} a, {ctype} b) {{\n"
        f"    {ctype} y = a * b;\n"
        f"    if (!(fabs{suffix}(y) >= {least} && fabs{suffix}(y) <= 2)) {{\n"
        f"        if (isinf(a) || isinf(b)) y = {inf};\n"
        f"        else if (a != 0 && b != 0 && fabs{suffix}(y) < {least})\n"
        f"            y = (a < 0) != (b < 0) ? -{least} : {least};\n"
        "    }\n    return y;\n}"
    )


def matrix(name: str, ptx: str, a: int, b: int, acc: str, reg: str) -> Helper:
    """The function ``name`` around an ``mma.sync``, with ``a`` and ``b`` registers of operands."""
    return Helper(mma(name, ptx, a, b, acc, reg))


def ldmatrix(name: str, count: int, trans: bool) -> Helper:
    """Each lane gives the shared address of one 16-byte row of an 8x8 matrix of 16-bit elements."""
    outs = ", ".join(f'"=r"(d[{i}])' for i in range(count))
    regs = ", ".join(f"%{i}" for i in range(count))
    suffix = ".trans" if trans else ""
    return Helper(
        f"__device__ __forceinline__ void {name}(u32* d, u32 address) {{\n"
        f'    asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 {{{regs}}}, [%{count}];"\n'
        f'                 : {outs} : "r"(address));\n}}'
    )


def load_pinned(size: int) -> Helper:
    """Zeros if inactive.  Volatile: the compiler does not move it, which keeps the live range of its result short."""
    word, count = {8: ("uint2", 2), 16: ("uint4", 4)}.get(size, ("u32", 1))
    ptx = f"ld.global.nc{f'.v{count}' if count > 1 else ''}.{ {1: 'u8', 2: 'u16'}.get(size, 'u32') }"
    fields = [f"y.{f}" for f in "xyzw"[:count]] if count > 1 else ["y"]
    outs = ", ".join(f'"=&r"({f})' for f in fields)
    zero = " ".join(f"mov.u32 %{i}, 0;" for i in range(count))
    target = ", ".join(f"%{i}" for i in range(count))
    target = f"{{{target}}}" if count > 1 else target
    return Helper(
        f"__device__ __forceinline__ {word} load_pinned_{size}(const void* p, bool wanted) {{\n"
        f"    {word} y;\n"
        f'    asm volatile("{{ .reg .pred w; setp.ne.u32 w, %{count + 1}, 0; {zero} "\n'
        f'                 "@w {ptx} {target}, [%{count}]; }}" : {outs} : "l"(p), "r"((u32)wanted));\n'
        "    return y;\n}"
    )


def from_float8(form: str) -> Helper:
    """Exact: through a pair of halves."""
    return Helper(
        f"__device__ __forceinline__ float {form}_to_f32(unsigned char x) {{\n"
        f'    u32 pair; asm("cvt.rn.f16x2.{form}x2 %0, %1;" : "=r"(pair) : "h"((u16)x));\n'
        "    return f16_to_f32((u16)pair);\n}",
        ("f16_to_f32",),
    )


def element_from_float8(form: str) -> Helper:
    """The conversion of one of four 8-bit floats in a register."""
    return Helper(
        f"// Element i of four; the compiler finds the conversion that two neighbours have in common.\n"
        f"__device__ __forceinline__ float {form}_to_f32_of(u32 four, int i) {{\n"
        f'    u32 y; asm("cvt.rn.f16x2.{form}x2 %0, %1;" : "=r"(y) : "h"(half_of(four, i / 2)));\n'
        f"    return f16_to_f32(half_of(y, i % 2));\n}}",
        ("f16_to_f32", "half_of"),
    )


def fma_pair(form: str) -> Helper:
    """A multiply-add of two halves of type ``form`` in a register."""
    return Helper(
        f"__device__ __forceinline__ u32 fma_{form}x2(u32 a, u32 b, u32 c) "
        f'{{ u32 y; asm("fma.rn.{form}x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c)); return y; }}'
    )


def e2m1_bits(form: str, shift: int, mask: int) -> Helper:
    """The sign stays where a float has it, the bits after it move to the last exponent and the first mantissa bits."""
    return Helper(
        "// The halves of byte i as two floats, smaller by a power of two.\n"
        f"__device__ __forceinline__ u32 e2m1_bits_{form}(u32 four, int i) {{\n"
        "    const u32 top = __byte_perm(four << 4, four, 0x4400 + 0x1111 * i);\n"
        f"    return (top & 0x80008000u) | ((top >> {shift}) & {mask << 16 | mask:#010x}u);\n}}"
    )


def to_float8(form: str, limit: str, compare: str, bits: str, what: str) -> Helper:
    """The rounding to nearest; the instruction alone gives the largest finite number for what is beyond it."""
    return Helper(
        f"// To nearest, ties to even; {what} beyond the largest number.\n"
        f"__device__ __forceinline__ unsigned char f32_to_{form}(float x) {{\n"
        f'    u16 pair; asm("cvt.rn.satfinite.{form}x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));\n'
        f"    return fabsf(x) {compare.strip()} {limit} ? (pair & 0x80) | {bits} : pair;\n}}"
    )


def cp_async(size: int, cached: bool = False) -> Helper:
    """Global to shared; an inactive copy writes zeros (source size 0) and reads nothing.

    ``cached``: 16 bytes go through L1, as fewer do in any case (PTX ISA, cp.async).
    """
    cache, name = "cg" if size == 16 and not cached else "ca", f"{size}_cached" if cached else str(size)
    return Helper(
        f"__device__ __forceinline__ void cp_async_{name}(u32 shared, const void* global, bool active) {{\n"
        f'    asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size}, %2;"\n'
        f'                 :: "r"(shared), "l"(global), "r"(active ? {size} : 0) : "memory");\n}}'
    )


def swizzle(width: int, xor: str) -> Helper:
    """The swizzled byte offset of a chunk in rows of ``width`` bytes."""
    shift = {128: 7, 64: 6, 32: 5}[width]
    return Helper(
        f"// Byte offset in a tile cut into slabs of {width}-byte rows whose 16-byte chunks are permuted by the row.\n"
        f"template <int ROWS> __device__ __forceinline__ u32 swizzle_{width}(int row, int byte) {{\n"
        f"    return (byte >> {shift}) * (ROWS * {width}) + row * {width}"
        f" + ((byte & {width - 1}) ^ (({xor}) << 4));\n}}"
    )


def asm(name: str, params: str, ptx: str, operands: str, comment: str = "") -> Helper:
    """A function ``name`` with C parameters ``params``, of one volatile instruction that orders memory.

    ``ptx``: the text of the instruction.  ``operands``: its input operands, in the syntax of inline assembly.
    """
    head = f"// {comment}\n" if comment else ""
    body = f'asm volatile("{ptx}" :: {operands} : "memory");'
    return Helper(f"{head}__device__ __forceinline__ void {name}({params}) {{ {body} }}")


def tma(rank: int) -> dict[str, Helper]:
    """TMA copies of ``rank`` axes; coordinates innermost first."""
    params = ", ".join(f"int c{i}" for i in range(rank))
    values = ", ".join(f'"r"(c{i})' for i in range(rank))
    load = ", ".join(f"%{i + 3}" for i in range(rank))
    store = ", ".join(f"%{i + 2}" for i in range(rank))
    tensor = f"cp.async.bulk.tensor.{rank}d"
    return {
        f"tma_load_{rank}d": Helper(
            f"__device__ __forceinline__ void tma_load_{rank}d("
            f"u32 shared, const TensorMap* map, u32 bar, {params}) {{\n"
            f'    asm volatile("{tensor}.shared::cluster.global.mbarrier::complete_tx::bytes "\n'
            f'                 "[%0], [%1, {{{load}}}], [%2];"\n'
            f'                 :: "r"(shared), "l"(map), "r"(bar), {values} : "memory");\n}}',
            ("tensor_map",),
        ),
        f"tma_load_{rank}d_multicast": Helper(
            f"// Copies to the same offset in each block of the cluster with a bit in `blocks`, with its barrier.\n"
            f"__device__ __forceinline__ void tma_load_{rank}d_multicast("
            f"u32 shared, const TensorMap* map, u32 bar, {params}, u16 blocks) {{\n"
            f'    asm volatile("{tensor}.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "\n'
            f'                 "[%0], [%1, {{{load}}}], [%2], %{rank + 3};"\n'
            f'                 :: "r"(shared), "l"(map), "r"(bar), {values}, "h"(blocks) : "memory");\n}}',
            ("tensor_map",),
        ),
        f"tma_store_{rank}d": Helper(
            f"__device__ __forceinline__ void tma_store_{rank}d(const TensorMap* map, u32 shared, {params}) {{\n"
            f'    asm volatile("{tensor}.global.shared::cta.bulk_group [%0, {{{store}}}], [%1];"\n'
            f'                 :: "l"(map), "r"(shared), {values} : "memory");\n}}',
            ("tensor_map",),
        ),
    }


def stmatrix(count: int) -> Helper:
    """Each lane gives the shared address of one 16-byte row of an 8x8 matrix of 16-bit elements."""
    ins = ", ".join(f'"r"(s[{i}])' for i in range(count))
    regs = ", ".join(f"%{i + 1}" for i in range(count))
    return Helper(
        f"__device__ __forceinline__ void stmatrix_x{count}(u32 address, const u32* s) {{\n"
        f'    asm volatile("stmatrix.sync.aligned.m8n8.x{count}.shared.b16 [%0], {{{regs}}};"\n'
        f'                 :: "r"(address), {ins} : "memory");\n}}'
    )
