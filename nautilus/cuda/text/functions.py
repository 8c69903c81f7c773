"""Text of device functions that the compiler makes: quotients by known reciprocals, and powers of two."""

from __future__ import annotations

from typing import Final

#: Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990, theorem 8
DIV_BY: Final = """\
// x / y, correctly rounded, from z = 1 / y rounded to nearest: a product and a correction by its remainder; the product
// itself where that is NaN, as for inf, and where it is 0, which may be -0.
__device__ __forceinline__ float div_by(float x, float y, float z) {
    const float q = __fmul_rn(x, z);
    const float p = fmaf(fmaf(-y, q, x), z, q);
    return fabsf(p) > 0.0f ? p : q;
}
__device__ __forceinline__ double div_by(double x, double y, double z) { return x / y; }"""


BINADE: Final = """\
// The largest power of two that is at most x, and within [2^-100, 2^127].
__device__ __forceinline__ float binade(float x) \
{ return __int_as_float(min(max(__float_as_int(x), 27 << 23) & 0x7f800000, 254 << 23)); }
__device__ __forceinline__ double binade(double x) \
{ return x >= 0x1p-100 ? exp2(fmin((double)ilogb(x), 127.0)) : x == x ? 0x1p-100 : 0x1p127; }"""
