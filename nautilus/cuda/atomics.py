"""Device helpers that combine a value into an element of memory in one step: name -> text, and the helpers it calls.

CUDA C++ Programming Guide, "Atomic Functions".
"""

from __future__ import annotations

from collections.abc import Mapping

Texts = tuple[str, tuple[str, ...]]


def _extreme(name: str, up: str, down: str, nan: str, bits: str) -> Texts:
    """Floats of one sign are ordered as their bits are; those below 0 in reverse."""
    return (
        f"__device__ __forceinline__ void atomic_{name}_f32(float* p, float x) {{\n"
        f"    if (x != x) atomicMax(reinterpret_cast<{nan}*>(p), {bits});  // beyond all numbers\n"
        f"    else if (__float_as_int(x) >= 0) atomic{up}(reinterpret_cast<int*>(p), __float_as_int(x));\n"
        f"    else atomic{down}(reinterpret_cast<u32*>(p), __float_as_uint(x));\n}}"
    ), ()


def _combine(name: str, atomic: str, combined: str, needs: tuple[str, ...] = ()) -> Mapping[str, Texts]:
    """Atomics on one address run one after another, so terms that meet are combined beforehand.

    ``combine``: neighbouring lanes with one element, of a warp that calls it together.  A quarter of the lanes has to
    gain by it.  ``extend``: terms of one thread that follow each other.  ``put``: no others.
    """
    template = "template <class T> __device__ __forceinline__ void"
    put = f"{template} put_{name}(bool active, T* p, T x) {{ if (active) {atomic}(p, x); }}"
    combine = (
        "// Combines x into *p in each active lane; the first of neighbours with one element does it for them.\n"
        f"{template} combine_{name}(bool active, T* p, T x) {{\n"
        "    const u64 own = active ? reinterpret_cast<u64>(p) : 0, next = __shfl_down_sync(0xffffffffu, own, 1);\n"
        "    const int lane = threadIdx.x % 32;\n"
        "    const u32 equal = __ballot_sync(0xffffffffu, active && lane < 31 && own == next);\n"
        "    if (__popc(equal) >= 8) {\n"
        "        #pragma unroll\n"
        "        for (int by = 1; by < 32; by *= 2) {\n"
        "            const T y = __shfl_down_sync(0xffffffffu, x, by);\n"
        "            const u32 all = (1u << by) - 1;\n"
        f"            if ((equal >> lane & all) == all) x = {combined};\n"
        "        }\n"
        "        active = active && !(lane > 0 && equal >> (lane - 1) & 1);\n"
        "    }\n"
        f"    if (active) {atomic}(p, x);\n}}"
    )
    extend = (
        "// Combines x with y, which waits for *at, if p is the same place; else y goes there, and x waits for *p.\n"
        f"{template} extend_{name}(T*& at, T& y, bool active, T* p, T x) {{\n"
        "    if (!active) return;\n"
        f"    if (p == at) x = {combined};\n"
        f"    else if (at) {atomic}(at, y);\n"
        "    at = p, y = x;\n}"
    )
    return {f"combine_{name}": (combine, needs), f"extend_{name}": (extend, needs), f"put_{name}": (put, needs)}


ATOMICS: Mapping[str, Texts] = {
    "atomic_max_f32": _extreme("max", "Max", "Min", "int", "0x7fffffff"),
    "atomic_min_f32": _extreme("min", "Min", "Max", "u32", "0xffffffffu"),
    **_combine("add", "atomicAdd", "x + y"),
    **_combine("max", "atomicMax", "x > y ? x : y"),
    **_combine("min", "atomicMin", "x < y ? x : y"),
    **_combine("max_f32", "atomic_max_f32", "max_nan(x, y)", ("atomic_max_f32", "max_nan")),
    **_combine("min_f32", "atomic_min_f32", "min_nan(x, y)", ("atomic_min_f32", "min_nan")),
}
