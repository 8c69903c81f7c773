"""Device helpers: small named functions around one PTX instruction or one idiom each.

Every helper states its precondition; the verifier of the MA-tile IR has checked it before the
emitter prints a call.  A file contains only the helpers that its kernels call (:func:`render`).
PTX ISA chapters: "Data Movement and Conversion Instructions" (ldmatrix, cp.async), "Warp Level
Matrix Instructions" (mma), "Floating Point Instructions" (ex2, max.NaN), "mbarrier".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nautilus.core.types import DType


@dataclass(frozen=True, slots=True)
class Helper:
    """A device function's text and the helpers that it calls."""

    text: str
    needs: tuple[str, ...] = ()


def _unary(name: str, ptx: str, comment: str) -> Helper:
    body = f'float y; asm("{ptx} %0, %1;" : "=f"(y) : "f"(x)); return y;'
    return Helper(f"// {comment}\n__device__ __forceinline__ float {name}(float x) {{ {body} }}")


def _binary_nan(name: str, ptx: str) -> Helper:
    body = f'float y; asm("{ptx} %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y;'
    return Helper(
        f"// NaN if either is NaN, as the mathematics has it (fmaxf and fminf drop it).\n"
        f"__device__ __forceinline__ float {name}(float a, float b) {{ {body} }}"
    )


def _mma(name: str, ptx: str, a: int, b: int, acc: str, reg: str) -> Helper:
    """``d += a . b``: d 4 accumulators, a and b as 32-bit registers."""
    outs = ", ".join(f'"+{reg}"(d[{i}])' for i in range(4))
    ins = ", ".join([*(f'"r"(a[{i}])' for i in range(a)), *(f'"r"(b[{i}])' for i in range(b))])
    regs_a = ", ".join(f"%{4 + i}" for i in range(a))
    regs_b = ", ".join(f"%{4 + a + i}" for i in range(b))
    regs_d = "%0, %1, %2, %3"
    text = (
        f"__device__ __forceinline__ void {name}({acc}* d, const u32* a, const u32* b) {{\n"
        f'    asm volatile("mma.sync.aligned.{ptx} {{{regs_d}}}, {{{regs_a}}}, {{{regs_b}}}, {{{regs_d}}};"\n'
        f"                 : {outs}\n                 : {ins});\n}}"
    )
    return Helper(text)


def _ldmatrix(name: str, count: int, trans: bool) -> Helper:
    """Each lane gives the shared address of one 16-byte row of an 8x8 matrix of 16-bit elements."""
    outs = ", ".join(f'"=r"(d[{i}])' for i in range(count))
    regs = ", ".join(f"%{i}" for i in range(count))
    suffix = ".trans" if trans else ""
    return Helper(
        f"__device__ __forceinline__ void {name}(u32* d, u32 address) {{\n"
        f'    asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 {{{regs}}}, [%{count}];"\n'
        f'                 : {outs} : "r"(address));\n}}'
    )


def _cp_async(size: int) -> Helper:
    """Global to shared; an inactive copy writes zeros (source size 0) and reads nothing."""
    cache = "cg" if size == 16 else "ca"
    return Helper(
        f"__device__ __forceinline__ void cp_async_{size}(u32 shared, const void* global, bool active) {{\n"
        f'    asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size}, %2;"\n'
        f'                 :: "r"(shared), "l"(global), "r"(active ? {size} : 0) : "memory");\n}}'
    )


def _swizzle(width: int, xor: str) -> Helper:
    shift = {128: 7, 64: 6, 32: 5}[width]
    return Helper(
        f"// Byte offset in a tile cut into slabs of {width}-byte rows whose 16-byte chunks are permuted by the row.\n"
        f"template <int ROWS> __device__ __forceinline__ u32 swizzle_{width}(int row, int byte) {{\n"
        f"    return (byte >> {shift}) * (ROWS * {width}) + row * {width}"
        f" + ((byte & {width - 1}) ^ (({xor}) << 4));\n}}"
    )


HELPERS: Mapping[str, Helper] = {
    "exp2_approx": _unary("exp2_approx", "ex2.approx.ftz.f32", "2^x to 2 ulp; 0 for -inf."),
    "rcp_approx": _unary("rcp_approx", "rcp.approx.ftz.f32", "1/x to 1 ulp."),
    "rsqrt_approx": _unary("rsqrt_approx", "rsqrt.approx.ftz.f32", "1/sqrt(x) to 2 ulp."),
    "max_nan": _binary_nan("max_nan", "max.NaN.f32"),
    "min_nan": _binary_nan("min_nan", "min.NaN.f32"),
    "max_nan_f64": Helper(
        "__device__ __forceinline__ double max_nan_f64(double a, double b) "
        "{ return a > b || a != a || (a == b && !signbit(a)) ? a : b; }"
    ),
    "min_nan_f64": Helper(
        "__device__ __forceinline__ double min_nan_f64(double a, double b) "
        "{ return a < b || a != a || (a == b && signbit(a)) ? a : b; }"
    ),
    "floor_div": Helper(
        "// Quotient and remainder rounded towards minus infinity, b > 0 or any sign.\n"
        "template <class T> __device__ __forceinline__ T floor_div(T a, T b) "
        "{ T q = a / b; return q - ((a % b != 0) && ((a < 0) != (b < 0))); }"
    ),
    "floor_mod": Helper(
        "template <class T> __device__ __forceinline__ T floor_mod(T a, T b) "
        "{ T r = a % b; return r != 0 && ((r < 0) != (b < 0)) ? r + b : r; }"
    ),
    "floor_mod_float": Helper(
        "template <class T> __device__ __forceinline__ T floor_mod_float(T a, T b) "
        "{ T r = fmod(a, b); return r != 0 && ((r < 0) != (b < 0)) ? r + b : r; }"
    ),
    "int_pow": Helper(
        "template <class T> __device__ __forceinline__ T int_pow(T a, T n) "
        "{ if (n < 0) return a == 1 ? 1 : a == -1 ? (n & 1 ? -1 : 1) : 0; "
        "T y = 1; for (; n > 0; n >>= 1, a *= a) if (n & 1) y *= a; return y; }"
    ),
    "sign_of": Helper(
        "template <class T> __device__ __forceinline__ T sign_of(T x) "
        "{ return x > T(0) ? T(1) : x < T(0) ? T(-1) : x; }"
    ),
    "to_tf32": Helper(
        "__device__ __forceinline__ float to_tf32(float x) "
        '{ u32 y; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x)); return __uint_as_float(y); }'
    ),
    "f16_to_f32": Helper(
        "__device__ __forceinline__ float f16_to_f32(u16 x) "
        '{ float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }'
    ),
    "f32_to_f16": Helper(
        "__device__ __forceinline__ u16 f32_to_f16(float x) "
        '{ u16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }'
    ),
    "bf16_to_f32": Helper(
        "__device__ __forceinline__ float bf16_to_f32(u16 x) { return __uint_as_float((u32)x << 16); }"
    ),
    "f32_to_bf16": Helper(
        "__device__ __forceinline__ u16 f32_to_bf16(float x) "
        '{ u16 y; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }'
    ),
    "pack_f16": Helper(
        "__device__ __forceinline__ u32 pack_f16(float low, float high) "
        '{ u32 y; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low)); return y; }'
    ),
    "pack_bf16": Helper(
        "__device__ __forceinline__ u32 pack_bf16(float low, float high) "
        '{ u32 y; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low)); return y; }'
    ),
    "half_of": Helper(
        "// One 16-bit half of a packed register.\n"
        "__device__ __forceinline__ u16 half_of(u32 pair, int high) { return high ? pair >> 16 : pair & 0xffffu; }"
    ),
    "byte_of": Helper(
        "__device__ __forceinline__ unsigned char byte_of(u32 four, int i) { return (four >> (8 * i)) & 0xffu; }"
    ),
    "pack_bytes": Helper(
        "__device__ __forceinline__ u32 pack_bytes(int a, int b, int c, int d) "
        "{ return (a & 0xff) | (b & 0xff) << 8 | (c & 0xff) << 16 | (u32)(d & 0xff) << 24; }"
    ),
    "shared_address": Helper(
        "__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }"
    ),
    "swizzle_128": _swizzle(128, "row & 7"),
    "swizzle_64": _swizzle(64, "(row >> 1) & 3"),
    "swizzle_32": _swizzle(32, "(row >> 2) & 1"),
    "cp_async_4": _cp_async(4),
    "cp_async_8": _cp_async(8),
    "cp_async_16": _cp_async(16),
    "cp_async_commit": Helper(
        '__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }'
    ),
    "cp_async_wait": Helper(
        "// All but this thread's PENDING youngest groups have arrived.\n"
        "template <int PENDING> __device__ __forceinline__ void cp_async_wait() "
        '{ asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory"); }'
    ),
    "named_barrier": Helper(
        "__device__ __forceinline__ void named_barrier(int id, int threads) "
        '{ asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory"); }'
    ),
    "ldmatrix_x4": _ldmatrix("ldmatrix_x4", 4, trans=False),
    "ldmatrix_x4_trans": _ldmatrix("ldmatrix_x4_trans", 4, trans=True),
    "ldmatrix_x2": _ldmatrix("ldmatrix_x2", 2, trans=False),
    "ldmatrix_x2_trans": _ldmatrix("ldmatrix_x2_trans", 2, trans=True),
    "mma_m16n8k16_f16": _mma("mma_m16n8k16_f16", "m16n8k16.row.col.f32.f16.f16.f32", 4, 2, "float", "f"),
    "mma_m16n8k16_bf16": _mma("mma_m16n8k16_bf16", "m16n8k16.row.col.f32.bf16.bf16.f32", 4, 2, "float", "f"),
    "mma_m16n8k8_tf32": _mma("mma_m16n8k8_tf32", "m16n8k8.row.col.f32.tf32.tf32.f32", 4, 2, "float", "f"),
    "mma_m16n8k32_s8": _mma("mma_m16n8k32_s8", "m16n8k32.row.col.s32.s8.s8.s32", 4, 2, "int", "r"),
    "mma_m16n8k32_u8": _mma("mma_m16n8k32_u8", "m16n8k32.row.col.s32.u8.u8.s32", 4, 2, "int", "r"),
}

#: 16-bit type -> (element to float, float to element, two floats to a packed register).
HALF: Mapping[DType, tuple[str, str, str]] = {
    DType.F16: ("f16_to_f32", "f32_to_f16", "pack_f16"),
    DType.BF16: ("bf16_to_f32", "f32_to_bf16", "pack_bf16"),
}

PRELUDE = (
    "typedef unsigned int u32;\ntypedef unsigned short u16;\n"
    "typedef u16 f16;   // bits of an IEEE binary16\ntypedef u16 bf16;  // the upper half of a binary32\n"
)


def closure(names: Iterable[str]) -> tuple[str, ...]:
    """``names`` and every helper they call, in the order of :data:`HELPERS`."""
    todo, seen = list(names), set[str]()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(HELPERS[name].needs)
    return tuple(n for n in HELPERS if n in seen)


def render(names: Iterable[str]) -> str:
    """Text of the helpers in ``names`` (and those they need), one blank line apart."""
    return "\n\n".join([PRELUDE.rstrip("\n"), *(HELPERS[n].text for n in closure(names))]) + "\n"
