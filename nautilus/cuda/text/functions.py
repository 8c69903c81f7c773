"""Text of device functions: quotients by known reciprocals, powers, logarithms, angles, and bytes as floats.

A byte is an integer below 2^8, and so the last one of the significand of a float from 2^23 on.  A permutation of bytes
and a subtraction then convert it, which is less than a conversion by the unit of special functions takes.
"""

from __future__ import annotations

from collections.abc import Mapping
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


#: the coefficients of SLEEF's atanf, which are those of a polynomial in the square of the tangent
ATAN2: Final = """\
// The angle of (x, y) to 6 ulp. The smaller side over the larger one is the tangent of an angle of up to pi / 4.
__device__ __forceinline__ float atan2_approx(float y, float x) {
    float a = fabsf(x), b = fabsf(y);
    const float s = a + b, inf = __int_as_float(0x7f800000);
    if (!(s >= 0x1p-60f && s <= 0x1p100f)) {  // the reciprocal of the larger side may be no normal number
        const float by = s < 1.0f ? 0x1p100f : 0x1p-100f;
        const bool ends = a == inf || b == inf;
        a = s != s ? s : ends ? (a == inf ? 1.0f : 0.0f) : s == 0.0f ? 1.0f : a * by;
        b = s != s ? s : ends ? (b == inf ? 1.0f : 0.0f) : b * by;
    }
    const float q = fminf(a, b) * rcp_approx(fmaxf(a, b)), z = q * q;
    float p = fmaf(2.8236389e-3f, z, -1.5956903e-2f);
    p = fmaf(p, z, 4.2504989e-2f);
    p = fmaf(p, z, -7.4890092e-2f);
    p = fmaf(p, z, 1.0634793e-1f);
    p = fmaf(p, z, -1.4202736e-1f);
    p = fmaf(p, z, 1.9992696e-1f);
    p = fmaf(p, z, -3.3333102e-1f);
    p = fmaf(p * z, q, q);
    p = b > a ? 1.57079637f - p : p;
    p = __float_as_int(x) < 0 ? 3.14159274f - p : p;
    return copysignf(p, y);
}"""

#: the operations of the library's code, which has a call instead of the choices for zeros and small numbers
ROOT: Final = """\
// The square root, correctly rounded, without a branch.
__device__ __forceinline__ float root(float x) {
    const bool small = x < 0x1p-101f;
    const float s = small ? x * 0x1p64f : x, r = rsqrt_approx(s), g = s * r;
    const float y = fmaf(fmaf(-g, g, s), 0.5f * r, g);
    return x == 0.0f || x == __int_as_float(0x7f800000) ? x : small ? y * 0x1p-32f : y;
}"""

HYPOT: Final = """\
// The length of (x, y) to 4 ulp.
__device__ __forceinline__ float hypot_approx(float x, float y) {
    const float s = fmaf(x, x, y * y);
    return s >= 0x1p-90f && s <= 0x1p120f ? s * rsqrt_approx(s) : hypotf(x, y);
}"""


LOG2: Final = """\
// log2(x) to 10 ulp. The unit of special functions has a constant error around 1, where the logarithm vanishes.
__device__ __forceinline__ float log2_approx(float x) {
    const float d = x - 1.0f;
    float p = fmaf(0.22733164f, d, -0.26152113f);
    p = fmaf(p, d, 0.28770778f);
    p = fmaf(p, d, -0.36000082f);
    p = fmaf(p, d, 0.4809085f);
    p = fmaf(p, d, -0.7213528f);
    p = fmaf(p, d, 1.442695f);
    return fabsf(d) < 0.25f ? p * d : lg2(x);
}"""

LOG1P: Final = """\
// log(1 + x) to 18 ulp, without a branch.
__device__ __forceinline__ float log1p_approx(float x) {
    float p = fmaf(0.15757428f, x, -0.18127263f);
    p = fmaf(p, x, 0.19942383f);
    p = fmaf(p, x, -0.24953355f);
    p = fmaf(p, x, 0.33334038f);
    p = fmaf(p, x, -0.5000037f);
    p = fmaf(p, x, 1.0f);
    return fabsf(x) < 0.25f ? p * x : lg2_normal(1.0f + x) * 0.693147182f;
}"""

POW: Final = """\
// x to the power y of at most 1 in magnitude, to 8 ulp. The exponent of x and the logarithm of its significand count
// apart, so that the error of the sum is small beside 1.
__device__ __forceinline__ float pow_approx(float x, float y) {
    const int bits = __float_as_int(x), e = bits - 0x3f3504f3 >> 23;
    if ((u32)bits - 0x01000000u >= 0x7e000000u) return power(x, y);  // no positive number, or near the ends of all
    const float m = __int_as_float(bits - (e << 23)), f = __int_as_float(0x4b400000 + e) - 12582912.0f;
    const float n = fmaf(y, f, 12582912.0f);
    const float rest = fmaf(y, lg2_normal(m), fmaf(y, f, 12582912.0f - n));
    return __int_as_float(__float_as_int(exp2_approx(rest)) + (__float_as_int(n) << 23));
}"""

#: the reduction of Cody and Waite, "Software Manual for the Elementary Functions", 1980, with three parts of pi / 2;
#: polynomials of the magnitudes up to pi / 4.  ``core.functions`` states their errors: 2, 2, and 4 ulp for the tangent.
#: The library's functions for larger angles are not inlined: their code is ten times as long, and would stand in a
#: kernel once for every element of a thread.
ANGLES: Final = """\
// x = q * pi / 2 + r for |x| up to 105615, and r is at most pi / 4 in magnitude.
__device__ __forceinline__ float quadrant(float x, int& q) {
    const float n = fmaf(x, 0.636619747f, 12582912.0f), k = n - 12582912.0f;
    q = __float_as_int(n);
    return fmaf(k, -5.39030253e-15f, fmaf(k, -7.54978942e-8f, fmaf(k, -1.57079625f, x)));
}
// sin(x + turn * pi / 2). Both polynomials are computed, so that the sine and the cosine of an angle share them.
__device__ __forceinline__ float turned(float x, int turn) {
    int q;
    const float r = quadrant(x, q), z = r * r;
    float s = fmaf(-1.95152956e-4f, z, 8.33216123e-3f);
    s = fmaf(s, z, -0.166666552f);
    s = fmaf(s, fmaf(z, r, 0.0f), r);
    float c = fmaf(2.44799464e-5f, z, -1.38885169e-3f);
    c = fmaf(c, z, 4.16666418e-2f);
    c = fmaf(c, z, -0.5f);
    c = fmaf(c, z, 1.0f);
    q += turn;
    return __uint_as_float(__float_as_uint(q & 1 ? c : s) ^ ((u32)q << 30 & 0x80000000u));
}"""


def angle(name: str, library: str, near: str) -> str:
    """The text of a function of angles: ``near`` up to 105615, and the library's function elsewhere."""
    return (
        f"__device__ __noinline__ float far_{name}(float x) {{ return {library}(x); }}\n"
        f"__device__ __forceinline__ float {name}(float x) "
        f"{{ return fabsf(x) <= 105615.0f ? {near} : far_{name}(x); }}"
    )


NEAR_TANGENT: Final = """\
__device__ __forceinline__ float near_tangent(float x) {
    int q;
    const float r = quadrant(x, q), z = r * r;
    float p = fmaf(9.39572789e-3f, z, 3.10276682e-3f);
    p = fmaf(p, z, 2.44406406e-2f);
    p = fmaf(p, z, 5.34083918e-2f);
    p = fmaf(p, z, 0.13338834f);
    p = fmaf(p, z, 0.333331555f);
    p = fmaf(p, z * r, r);
    const float y = -rcp_approx(p);
    return q & 1 ? fmaf(fmaf(p, y, 1.0f), y, y) : p;
}"""


#: x of a type wider than f32 before its rounding to a type of fewer bits
TO_ODD: Final = """\
// The f32 next to x towards 0, with an odd last bit where that is not x: to fewer bits, it rounds as x does.
__device__ __forceinline__ float {dtype}_to_odd({c} x) {{
    const float y = {cut}(x);
    return ({c})y == x ? y : __uint_as_float(__float_as_uint(y) | 1);
}}"""


def _byte(name: str, four: str, less: str) -> str:
    return (
        f"__device__ __forceinline__ float {name}(u32 four, int i) "
        f"{{ return __uint_as_float(__byte_perm({four}, 0x4b000000u, 0x7440 + i)) - {less}; }}"
    )


#: byte i of a register as a float
BYTE_TO_F32: Final[Mapping[str, str]] = {
    "u8_to_f32_of": _byte("u8_to_f32_of", "four", "8388608.0f"),
    "i8_to_f32_of": _byte("i8_to_f32_of", "four ^ 0x80808080u", "8388736.0f"),
}


def _pair(name: str, comment: str, body: str) -> str:
    return f"// {comment}\n__device__ __forceinline__ u32 {name}(u32 four, int i) {{\n{body}\n}}"


def _integer_pair(name: str, four: str, plus: str) -> str:
    """An integer becomes the last bits of 1024 + n."""
    return _pair(
        name,
        "Pair i of four integers: each becomes the last bits of 1024 + n.",
        f"    const u32 x = __byte_perm({four}, 0x64646464u, 0x4140 + 0x0202 * i);\n    u32 y;\n"
        f'    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(x), "r"(0x3c003c00u), "r"({plus}));\n    return y;',
    )


def _float8_pair(form: str) -> str:
    return _pair(
        f"{form}_to_f16x2",
        "Pair i of four 8-bit floats, exactly.",
        f'    u32 y; asm("cvt.rn.f16x2.{form}x2 %0, %1;" : "=r"(y) : "h"((u16)(four >> (16 * i))));\n    return y;',
    )


#: the conversion of two neighbours among four numbers of 8 bits to f16
BYTES_TO_F16: Final[Mapping[str, str]] = {
    "u8_to_f16x2": _integer_pair("u8_to_f16x2", "four", "0xe400e400u"),
    "i8_to_f16x2": _integer_pair("i8_to_f16x2", "four ^ 0x80808080u", "0xe480e480u"),
    **{f"{form}_to_f16x2": _float8_pair(form) for form in ("e4m3", "e5m2")},
}
#: two floats with at most the bits of bf16
TRUNCATE: Final = (
    "// Both of at most the bits of bf16.\n__device__ __forceinline__ u32 truncate_bf16(float low, float high) "
    "{ return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632); }"
)
