"""Device helpers that combine a value into an element of memory in one step: name -> text, and the helpers it calls.

CUDA C++ Programming Guide, "Atomic Functions".
"""

from __future__ import annotations

from collections.abc import Mapping

Texts = tuple[str, tuple[str, ...]]


def _extreme(name: str, up: str, down: str, nan: str, bits: str) -> Texts:
    """Floats of one sign are ordered as their bits are; those below 0 the other way round."""
    return (
        f"__device__ __forceinline__ void atomic_{name}_f32(float* p, float x) {{\n"
        f"    if (x != x) atomicMax(reinterpret_cast<{nan}*>(p), {bits});  // beyond all numbers\n"
        f"    else if (__float_as_int(x) >= 0) atomic{up}(reinterpret_cast<int*>(p), __float_as_int(x));\n"
        f"    else atomic{down}(reinterpret_cast<u32*>(p), __float_as_uint(x));\n}}"
    ), ()


def _combine(name: str, atomic: str, combined: str, needs: tuple[str, ...] = ()) -> Texts:
    """Atomics on one address run one after another, so lanes that all have it combine their values beforehand.

    All lanes of the warp call it together.
    """
    return (
        "// Combines x into *p in each active lane; a warp whose lanes have one element in common does it once.\n"
        f"template <class T> __device__ __forceinline__ void combine_{name}(bool active, T* p, T x) {{\n"
        "    const u64 first = __shfl_sync(0xffffffffu, reinterpret_cast<u64>(p), 0);\n"
        "    if (__all_sync(0xffffffffu, active && reinterpret_cast<u64>(p) == first)) {\n"
        "        #pragma unroll\n"
        "        for (int by = 16; by; by /= 2) {\n"
        "            const T y = __shfl_xor_sync(0xffffffffu, x, by);\n"
        f"            x = {combined};\n"
        "        }\n"
        "        active = threadIdx.x % 32 == 0;\n"
        "    }\n"
        f"    if (active) {atomic}(p, x);\n}}"
    ), needs


ATOMICS: Mapping[str, Texts] = {
    "atomic_max_f32": _extreme("max", "Max", "Min", "int", "0x7fffffff"),
    "atomic_min_f32": _extreme("min", "Min", "Max", "u32", "0xffffffffu"),
    "combine_add": _combine("add", "atomicAdd", "x + y"),
    "combine_max": _combine("max", "atomicMax", "x > y ? x : y"),
    "combine_min": _combine("min", "atomicMin", "x < y ? x : y"),
    "combine_max_f32": _combine("max_f32", "atomic_max_f32", "max_nan(x, y)", ("atomic_max_f32", "max_nan")),
    "combine_min_f32": _combine("min_f32", "atomic_min_f32", "min_nan(x, y)", ("atomic_min_f32", "min_nan")),
}
