"""Device helpers: small named functions around one PTX instruction or one idiom each.

Every helper states its precondition; the verifier of the MA-tile IR has checked it before the
emitter prints a call.  A file contains only the helpers that its kernels call (:func:`render`).
PTX ISA chapters: "Data Movement and Conversion Instructions" (ldmatrix, cp.async), "Warp Level
Matrix Instructions" (mma), "Floating Point Instructions" (ex2, max.NaN), "mbarrier".
They stand for ``cuda_fp16.h`` and ``cuda::ptx``, which the base install does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

from nautilus.core.types import DType
from nautilus.cuda.atomics import ATOMICS
from nautilus.cuda.text.functions import (
    ANGLES,
    ATAN2,
    BINADE,
    BYTE_TO_F32,
    BYTES_TO_F16,
    DIV_BY,
    HYPOT,
    LOG1P,
    LOG2,
    NEAR_TANGENT,
    POW,
    ROOT,
    TO_ODD,
    TRUNCATE,
    angle,
)
from nautilus.cuda.text.helpers import (
    Helper,
    asm,
    binary,
    cp_async,
    e2m1_bits,
    element_from_float8,
    fma_pair,
    from_float8,
    ldmatrix,
    load_pinned,
    matrix,
    product_of_factors,
    stmatrix,
    swizzle,
    tma,
    to_float8,
    unary,
)
from nautilus.cuda.text.matrix import mma_f64, wgmma

_IF_NAN = "NaN if either operand is NaN (fmaxf and fminf return the other operand)."
#: functions of two values of one type; quotients round towards minus infinity, and shifts take any amount
_OF_TWO = "template <class T> __device__ __forceinline__ T {}(T a, T b) {{ {} }}"
_BODIES = {
    "floor_div": "if (!b || b == -1) return (T)(0 - (u64)a); T q = a / b; return q - (a % b && (a < 0) != (b < 0));",
    "floor_mod": "if (!b || b == -1) return 0; T r = a % b; return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;",
    "floor_mod_float": "T r = fmod(a, b); return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;",
    "shift_left": "return (u64)b < 8 * sizeof(T) ? (T)((u64)a << b) : 0;",
    "shift_right": "return a >> ((u64)b < 8 * sizeof(T) ? b : (T)(8 * sizeof(T) - 1));",
}

#: wider type -> (its C name, the conversion to f32 towards 0)
_CUTS = {
    DType.F64: ("double", "__double2float_rz"),
    DType.I64: ("long long", "__ll2float_rz"),
    DType.I32: ("int", "__int2float_rz"),
}

HELPERS: Mapping[str, Helper] = {
    "exp2_approx": unary("exp2_approx", "ex2.approx.ftz.f32", "2^x to 2 ulp; 0 for -inf."),
    "lg2": unary("lg2", "lg2.approx.f32", "log2(x), near 1 to 2^-22."),
    "lg2_normal": unary("lg2_normal", "lg2.approx.ftz.f32", "The same, and -inf of numbers below 2^-126."),
    "rcp_approx": unary("rcp_approx", "rcp.approx.ftz.f32", "1/x to 1 ulp."),
    "rsqrt_approx": unary("rsqrt_approx", "rsqrt.approx.ftz.f32", "1/sqrt(x) to 2 ulp."),
    "sqrt_approx": unary("sqrt_approx", "sqrt.approx.f32", "The square root to 2 ulp, without a branch."),
    "tanh_approx": unary("tanh_approx", "tanh.approx.f32", "tanh(x) to a relative 2^-11."),
    "div_approx": binary("div_approx", "div.full.f32", "a / b to 2 ulp, without a branch."),
    "max_nan": binary("max_nan", "max.NaN.f32", _IF_NAN),
    "min_nan": binary("min_nan", "min.NaN.f32", _IF_NAN),
    "max_nan_f64": Helper(
        "__device__ __forceinline__ double max_nan_f64(double a, double b) "
        "{ return a > b || a != a || (a == b && !signbit(a)) ? a : b; }"
    ),
    "min_nan_f64": Helper(
        "__device__ __forceinline__ double min_nan_f64(double a, double b) "
        "{ return a < b || a != a || (a == b && signbit(a)) ? a : b; }"
    ),
    "wrapping_abs": Helper(
        "// The magnitude; that of the least integer is itself.\n"
        "template <class T> __device__ __forceinline__ T wrapping_abs(T a) { return a < 0 ? (T)(0 - (u64)a) : a; }"
    ),
    **{name: Helper(_OF_TWO.format(name, body)) for name, body in _BODIES.items()},
    "power": Helper(  # a scalar exponent is the same in all threads, so that a square costs one product
        "__device__ __forceinline__ float power(float x, float y) { return y == 2.0f ? x * x : powf(x, y); }"
    ),
    "int_pow": Helper(
        "template <class T> __device__ __forceinline__ T int_pow(T a, T n) "
        "{ if (n < 0) return a == 1 ? 1 : a == -1 ? (n & 1 ? -1 : 1) : 0; "
        "u64 y = 1, x = a; for (; n > 0; n >>= 1, x *= x) if (n & 1) y *= x; return (T)y; }"
    ),
    "ctpop": Helper("template <class T> __device__ __forceinline__ T ctpop(T a) { return __popc((u32)a); }"),
    "binade": Helper(BINADE),
    "div_by": Helper(DIV_BY),
    "atan2_approx": Helper(ATAN2, ("rcp_approx",)),
    "root": Helper(ROOT, ("rsqrt_approx",)),
    "hypot_approx": Helper(HYPOT, ("rsqrt_approx",)),
    "turned": Helper(ANGLES),
    "near_tangent": Helper(NEAR_TANGENT, ("turned", "rcp_approx")),
    "sine": Helper(angle("sine", "sinf", "turned(x, 0)"), ("turned",)),
    "cosine": Helper(angle("cosine", "cosf", "turned(x, 1)"), ("turned",)),
    "tangent": Helper(angle("tangent", "tanf", "near_tangent(x)"), ("near_tangent",)),
    "log2_approx": Helper(LOG2, ("lg2",)),
    "log1p_approx": Helper(LOG1P, ("lg2_normal",)),
    "pow_approx": Helper(POW, ("power", "lg2_normal", "exp2_approx")),
    "sign_of": Helper(
        "template <class T> __device__ __forceinline__ T sign_of(T x) "
        "{ return x > T(0) ? T(1) : x < T(0) ? T(-1) : x; }"
    ),
    "split_tf32": Helper(
        "// x becomes the sum of two tf32 numbers: x rounded, and the rest, whose last bits an MMA does not read.\n"
        "__device__ __forceinline__ void split_tf32(u32& x, u32& low) {\n"
        "    const u32 high = (x + 0x1000u) & 0xffffe000u;\n"
        "    low = __float_as_uint(__fsub_rn(__uint_as_float(x), __uint_as_float(high)));\n"
        "    x = high;\n}"
    ),
    "to_tf32": Helper(
        "__device__ __forceinline__ float to_tf32(float x) "
        '{ u32 y; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x)); return __uint_as_float(y); }'
    ),
    "to_integer": Helper(
        "// Where one side has 64 bits, NaN alone does not become 0.\n"
        "template <class To, class From> __device__ __forceinline__ To to_integer(From x) "
        "{ return x == x ? (To)x : 0; }"
    ),
    "round_tf32": Helper(  # ``to_tf32`` rounds ties away from 0; the last bits of a NaN do not matter
        "// To nearest, ties to even.\n"
        "__device__ __forceinline__ float round_tf32(float x) "
        "{ const u32 y = __float_as_uint(x); "
        "return x == x ? __uint_as_float((y + 0xfffu + (y >> 13 & 1)) & 0xffffe000u) : x; }"
    ),
    **{f"{dtype}_to_odd": Helper(TO_ODD.format(dtype=dtype, c=c, cut=cut)) for dtype, (c, cut) in _CUTS.items()},
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
    "e4m3_to_f32": from_float8("e4m3"),
    "e5m2_to_f32": from_float8("e5m2"),
    "f32_to_e4m3": to_float8("e4m3", "464.0f", "> ", "0x7f", "NaN"),
    "f32_to_e5m2": to_float8("e5m2", "61440.0f", ">=", "0x7c", "infinity"),
    **{f"product_of_factors_{t}": product_of_factors(t) for t in ("f32", "f64")},
    "half_of": Helper(
        "// One 16-bit half of a packed register.\n"
        "__device__ __forceinline__ u16 half_of(u32 pair, int high) { return high ? pair >> 16 : pair & 0xffffu; }"
    ),
    **{f"{form}_to_f32_of": element_from_float8(form) for form in ("e4m3", "e5m2")},
    "byte_of": Helper(
        "__device__ __forceinline__ unsigned char byte_of(u32 four, int i) { return (four >> (8 * i)) & 0xffu; }"
    ),
    **{name: Helper(text) for name, text in {**BYTE_TO_F32, **BYTES_TO_F16}.items()},
    "truncate_bf16": Helper(TRUNCATE),
    **{f"fma_{t}x2": fma_pair(t) for t in ("f16", "bf16")},
    "nibble_bits": Helper(
        "// The mask is in memory, because an instruction has one literal: ptxas would move another one for each use.\n"
        "static __constant__ u32 nibble_mask = 0x000f000fu;\n"
        "// The halves of byte i as the low bits, inverted where EXPONENT has them, of floats with its upper bits.\n"
        "template <u32 EXPONENT> __device__ __forceinline__ u32 nibble_bits(u32 four, int i) {\n"
        "    return (__byte_perm(four, four >> 4, 0x4400 + 0x1111 * i) & nibble_mask) ^ EXPONENT;\n}"
    ),
    "nibble_bytes": Helper(
        "// The halves of the two low bytes in four bytes, inverted where FLIP has bits, less the bytes of LESS.\n"
        "template <u32 FLIP, u32 LESS> __device__ __forceinline__ u32 nibble_bytes(u32 two) {\n"
        "    u32 x = __byte_perm(two, 0, 0x4140);\n"
        "    x = ((x & 0x000f000fu) | (x << 4 & 0x0f000f00u)) ^ FLIP;\n"
        "    return LESS == 0 ? x : ((x | 0x80808080u) - LESS) ^ 0x80808080u;\n}"
    ),
    **{f"e2m1_bits_{t}": e2m1_bits(t, *at) for t, at in {"f16": (3, 0x0E00), "bf16": (6, 0x01C0)}.items()},
    "pack_bytes": Helper(
        "__device__ __forceinline__ u32 pack_bytes(int a, int b, int c, int d) "
        "{ return (a & 0xff) | (b & 0xff) << 8 | (c & 0xff) << 16 | (u32)(d & 0xff) << 24; }"
    ),
    "pack_e4m3": Helper(
        "// To nearest, ties to even; for numbers below 464 and NaN.\n"
        "__device__ __forceinline__ u32 pack_e4m3(float a, float b, float c, float d) {\n"
        "    u16 low, high;\n"
        '    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));\n'
        '    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));\n'
        "    return low | (u32)high << 16;\n}"
    ),
    "shared_address": Helper(
        "__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }"
    ),
    "shifted_vector": Helper(
        "// The 16 bytes that begin at byte SKIP, 1 to 16, of two vectors in shared memory.\n"
        "__device__ __forceinline__ uint4 shifted_vector(const void* p, int skip) {\n"
        "    const uint4 a = reinterpret_cast<const uint4*>(p)[0], b = reinterpret_cast<const uint4*>(p)[1];\n"
        "    u32 w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};\n"
        "#pragma unroll\n"
        "    for (int step = 4; step > 0; step /= 2) {\n"
        "#pragma unroll\n"
        "        for (int i = 0; i + step < 8; ++i) w[i] = skip & 4 * step ? w[i + step] : w[i];\n"
        "    }\n"
        "    const int bits = skip % 4 * 8;\n"
        "#pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) w[i] = (u32)(((u64)w[i + 1] << 32 | w[i]) >> bits);\n"
        "    return make_uint4(w[0], w[1], w[2], w[3]);\n}"
    ),
    "swizzle_128": swizzle(128, "row & 7"),
    "swizzle_64": swizzle(64, "(row >> 1) & 3"),
    "swizzle_32": swizzle(32, "(row >> 2) & 1"),
    **{f"load_pinned_{size}": load_pinned(size) for size in (1, 2, 4, 8, 16)},
    "cp_async_4": cp_async(4),
    "cp_async_8": cp_async(8),
    "cp_async_16": cp_async(16),
    "cp_async_16_cached": cp_async(16, cached=True),
    "cp_async_commit": Helper(
        '__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }'
    ),
    "cp_async_wait": Helper(
        "// At most this thread's PENDING youngest groups are incomplete.\n"
        "template <int PENDING> __device__ __forceinline__ void cp_async_wait() "
        '{ asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory"); }'
    ),
    "named_barrier": Helper(
        "__device__ __forceinline__ void named_barrier(int id, int threads) "
        '{ asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory"); }'
    ),
    "team_barrier": Helper(
        "// Waits until all blocks of a team have arrived: their arrivals add up to 2^31 and change the upper bit.\n"
        "__device__ __forceinline__ void team_barrier(int* arrivals, u32 arrival, u32& phase) {\n"
        "    __syncthreads();\n"
        "    phase ^= 0x80000000u;\n"
        "    if (threadIdx.x == 0) {\n"
        '        asm volatile("red.release.gpu.global.add.u32 [%0], %1;" :: "l"(arrivals), "r"(arrival) : "memory");\n'
        "        u32 now;\n"
        "        do {\n"
        '            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrivals) : "memory");\n'
        "        } while ((now & 0x80000000u) != phase);\n"
        "    }\n"
        "    __syncthreads();\n}"
    ),
    "grid_wait": asm(
        "grid_wait", "", "griddepcontrol.wait;", "", "Earlier launches have ended, and what they wrote is visible."
    ),
    "launch_dependents": asm("launch_dependents", "", "griddepcontrol.launch_dependents;", ""),
    "named_arrive": asm(
        "named_arrive", "int id, int threads", "bar.arrive %0, %1;", '"r"(id), "r"(threads)', "Arrives without waiting."
    ),
    "tensor_map": Helper("struct __align__(64) TensorMap { unsigned long long opaque[16]; };"),
    **{name: h for rank in range(1, 6) for name, h in tma(rank).items()},
    "tma_commit": asm("tma_commit", "", "cp.async.bulk.commit_group;", ""),
    "tma_wait_read": Helper(
        "// At most this thread's PENDING youngest groups of stores still read shared memory.\n"
        "template <int PENDING> __device__ __forceinline__ void tma_wait_read() "
        '{ asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(PENDING) : "memory"); }'
    ),
    "tma_wait": Helper(
        "template <int PENDING> __device__ __forceinline__ void tma_wait() "
        '{ asm volatile("cp.async.bulk.wait_group %0;" :: "n"(PENDING) : "memory"); }'
    ),
    "fence_proxy": asm("fence_proxy", "", "fence.proxy.async.shared::cta;", ""),
    "mbarrier_init": asm(
        "mbarrier_init", "u32 bar, int arrivals", "mbarrier.init.shared::cta.b64 [%0], %1;", '"r"(bar), "r"(arrivals)'
    ),
    "fence_mbarrier_init": asm("fence_mbarrier_init", "", "fence.mbarrier_init.release.cluster;", ""),
    "mbarrier_arrive": asm("mbarrier_arrive", "u32 bar", "mbarrier.arrive.shared::cta.b64 _, [%0];", '"r"(bar)'),
    "mbarrier_arrive_at": Helper(
        "// Arrives at the barrier at this offset in block `rank` of the cluster.\n"
        "__device__ __forceinline__ void mbarrier_arrive_at(u32 bar, u32 rank) {\n"
        '    asm volatile("{ .reg .b32 there;\\n"\n'
        '                 "mapa.shared::cluster.u32 there, %0, %1;\\n"\n'
        '                 "mbarrier.arrive.shared::cluster.b64 _, [there]; }" :: "r"(bar), "r"(rank) : "memory");\n}'
    ),
    "shared_of_block": Helper(
        "// The address of `here` in block `rank` of the cluster.\n"
        "__device__ __forceinline__ unsigned char* shared_of_block(unsigned char* here, u32 rank) {\n"
        "    unsigned char* there;\n"
        '    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(here), "r"(rank));\n'
        "    return there;\n}"
    ),
    "cluster_arrive": asm("cluster_arrive", "", "barrier.cluster.arrive;", "", "Releases what this thread wrote."),
    "cluster_arrive_relaxed": asm("cluster_arrive_relaxed", "", "barrier.cluster.arrive.relaxed;", ""),
    "cluster_wait": asm("cluster_wait", "", "barrier.cluster.wait;", "", "For all threads of the cluster."),
    "mbarrier_expect": asm(
        "mbarrier_expect",
        "u32 bar, int bytes",
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;",
        '"r"(bar), "r"(bytes)',
        "One arrival that announces bytes of bulk copies.",
    ),
    "mbarrier_wait": Helper(
        "// Waits until the phase of this parity has completed.\n"
        "__device__ __forceinline__ void mbarrier_wait(u32 bar, u32 parity) {\n"
        '    asm volatile("{ .reg .pred p;\\n"\n'
        '                 "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\\n"\n'
        '                 "@p bra done;\\n"\n'
        '                 "bra again;\\n"\n'
        '                 "done: }" :: "r"(bar), "r"(parity) : "memory");\n}'
    ),
    **{name: Helper(*text) for name, text in ATOMICS.items()},
    "registers_less": Helper(
        "template <int COUNT> __device__ __forceinline__ void registers_less() "
        '{ asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(COUNT)); }'
    ),
    "registers_more": Helper(
        "template <int COUNT> __device__ __forceinline__ void registers_more() "
        '{ asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(COUNT)); }'
    ),
    "wgmma_fence": asm("wgmma_fence", "", "wgmma.fence.sync.aligned;", ""),
    "wgmma_commit": asm("wgmma_commit", "", "wgmma.commit_group.sync.aligned;", ""),
    "wgmma_wait": Helper(
        "// At most this warpgroup's PENDING youngest groups of MMAs are incomplete.\n"
        "template <int PENDING> __device__ __forceinline__ void wgmma_wait() "
        '{ asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory"); }'
    ),
    "fence_operand": Helper(
        "// The compiler moves no read of an MMA's result before this point.\n"
        "template <int N> __device__ __forceinline__ void fence_operand(float (&x)[N]) {\n"
        "    #pragma unroll\n"
        '    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i]) :: "memory");\n}'
    ),
    "fence_operand_int": Helper(
        "template <int N> __device__ __forceinline__ void fence_operand_int(int (&x)[N]) {\n"
        "    #pragma unroll\n"
        '    for (int i = 0; i < N; ++i) asm volatile("" : "+r"(x[i]) :: "memory");\n}'
    ),
    "wgmma_descriptor": Helper(
        "// Address and layout of an MMA operand in shared memory; adding n moves the address by 16 n bytes.\n"
        "template <int LEADING, int STRIDE, int SWIZZLE>\n"
        "__device__ __forceinline__ u64 wgmma_descriptor(u32 address) {\n"
        "    constexpr u64 mode = SWIZZLE == 128 ? 1 : SWIZZLE == 64 ? 2 : 3;\n"
        "    constexpr u64 layout = (u64)(LEADING >> 4) << 16 | (u64)(STRIDE >> 4) << 32 | mode << 62;\n"
        "    return (u64)((address & 0x3ffffu) >> 4) | layout;\n}"
    ),
    "stmatrix_x4": stmatrix(4),
    "stmatrix_x2": stmatrix(2),
    "ldmatrix_x4": ldmatrix("ldmatrix_x4", 4, trans=False),
    "ldmatrix_x4_trans": ldmatrix("ldmatrix_x4_trans", 4, trans=True),
    "ldmatrix_x2": ldmatrix("ldmatrix_x2", 2, trans=False),
    "ldmatrix_x2_trans": ldmatrix("ldmatrix_x2_trans", 2, trans=True),
    "mma_m16n8k16_f16": matrix("mma_m16n8k16_f16", "m16n8k16.row.col.f32.f16.f16.f32", 4, 2, "float", "f"),
    "mma_m16n8k16_bf16": matrix("mma_m16n8k16_bf16", "m16n8k16.row.col.f32.bf16.bf16.f32", 4, 2, "float", "f"),
    "mma_m16n8k8_f64": Helper(mma_f64("mma_m16n8k8_f64")),
    "mma_m16n8k8_tf32": matrix("mma_m16n8k8_tf32", "m16n8k8.row.col.f32.tf32.tf32.f32", 4, 2, "float", "f"),
    **{
        name: matrix(name, f"m16n8k32.row.col.{sums}.{a}.{b}.{sums}", 4, 2, c, register)
        for sums, c, register, types in (("f32", "float", "f", ("e4m3", "e5m2")), ("s32", "int", "r", ("s8", "u8")))
        for a, b in product(types, repeat=2)
        for name in (f"mma_m16n8k32_{a}" + f"_{b}" * (a != b),)
    },
}

#: 16-bit type -> (element to float, float to element, two floats to a packed register).
HALF: Mapping[DType, tuple[str, str, str]] = {
    DType.F16: ("f16_to_f32", "f32_to_f16", "pack_f16"),
    DType.BF16: ("bf16_to_f32", "f32_to_bf16", "pack_bf16"),
}

#: float that is stored as its bits -> (element to float, float to element).
BITS: Mapping[DType, tuple[str, str]] = {
    **{dtype: names[:2] for dtype, names in HALF.items()},
    DType.F8E4M3: ("e4m3_to_f32", "f32_to_e4m3"),
    DType.F8E5M2: ("e5m2_to_f32", "f32_to_e5m2"),
}

#: type of 8 bits -> its name in helpers that convert several numbers in a register.
BYTES: Mapping[DType, str] = {DType.U8: "u8", DType.I8: "i8", DType.F8E4M3: "e4m3", DType.F8E5M2: "e5m2"}

#: 8-bit float -> four floats in its range to a packed register.
PACKED: Mapping[DType, str] = {DType.F8E4M3: "pack_e4m3"}

if set(BITS) != {d for d in DType if d.is_half or d.is_float8}:
    raise AssertionError("a float that is stored as its bits has no conversions")

PRELUDE = (
    "typedef unsigned int u32;\ntypedef unsigned short u16;\ntypedef unsigned long long u64;\n"
    "typedef u16 f16;   // bits of an IEEE binary16\ntypedef u16 bf16;  // the upper half of a binary32\n"
)


def closure(names: Iterable[str]) -> tuple[str, ...]:
    """``names`` and every helper they call, in the order of :data:`HELPERS`, products last."""
    todo, seen = list(names), set[str]()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(helper(name).needs)
    return (*(n for n in HELPERS if n in seen), *sorted(seen - set(HELPERS)))


def helper(name: str) -> Helper:
    """The helper called ``name``; those of warpgroup MMAs are derived from their names."""
    return HELPERS[name] if name in HELPERS else Helper(wgmma(name))


def render(names: Iterable[str]) -> str:
    """Text of the helpers in ``names`` (and those they need), one blank line apart."""
    return "\n\n".join([PRELUDE.rstrip("\n"), *(helper(n).text for n in closure(names))]) + "\n"
