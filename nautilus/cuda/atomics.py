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


ATOMIC_EXTREMES: Mapping[str, Texts] = {
    "atomic_max_f32": _extreme("max", "Max", "Min", "int", "0x7fffffff"),
    "atomic_min_f32": _extreme("min", "Min", "Max", "u32", "0xffffffffu"),
}

#: combiner -> x and y combined, and the helpers that this calls
COMBINED: Mapping[str, Texts] = {
    "add": ("{x} + y", ()),
    "max": ("{x} > y ? {x} : y", ()),
    "min": ("{x} < y ? {x} : y", ()),
    "max_f32": ("max_nan({x}, y)", ("max_nan",)),
    "min_f32": ("min_nan({x}, y)", ("min_nan",)),
}


def _combine(name: str, atomic: str, within: str = "") -> Mapping[str, Texts]:
    """Atomics on one address run one after another, so terms that meet are combined beforehand.

    ``combine``: neighbouring lanes with one element, of a warp that calls it together.  A quarter of the lanes has to
    gain by it.  ``extend``: terms of one thread that follow each other.  ``put``: no others.  ``extend_at`` and
    ``put_at``: the same in an array of the block in shared memory; ``within``: the atomic there, if it is another one.
    """
    combined, needs = COMBINED[name][0].format(x="x"), COMBINED[name][1]
    needs = needs if atomic not in ATOMIC_EXTREMES else (atomic, *needs)
    within = within or atomic
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
    extend_at = (
        "// The same for elements of an array in shared memory; a place below 0 is none.\n"
        f"{template} extend_at_{name}(T* all, int& at, T& y, bool active, int p, T x) {{\n"
        "    if (!active) return;\n"
        f"    if (p == at) x = {combined};\n"
        f"    else if (at >= 0) {within}(all + at, y);\n"
        "    at = p, y = x;\n}"
    )
    put_at = f"{template} put_at_{name}(bool active, T* p, T x) {{ if (active) {within}(p, x); }}"
    texts = {"combine": combine, "extend": extend, "extend_at": extend_at, "put": put, "put_at": put_at}
    own = needs if within == atomic else (*needs, within)
    return {f"{key}_{name}": (text, own if key.endswith("at") else needs) for key, text in texts.items()}


ATOMICS: Mapping[str, Texts] = {
    **ATOMIC_EXTREMES,
    "add_in_block": (
        (
            "// Additions of 64 bits in shared memory are loops. Two of 32 bits with a carry give the same sum.\n"
            "__device__ __forceinline__ void add_in_block(u64* p, u64 x) {\n"
            "    u32* const half = reinterpret_cast<u32*>(p);\n"
            "    const u32 low = (u32)x, high = (u32)(x >> 32) + (atomicAdd(half, low) + low < low);\n"
            "    if (high) atomicAdd(half + 1, high);\n}\n"
            "__device__ __forceinline__ void add_in_block(u32* p, u32 x) { atomicAdd(p, x); }"
        ),
        (),
    ),
    **_combine("add", "atomicAdd", within="add_in_block"),
    **_combine("max", "atomicMax"),
    **_combine("min", "atomicMin"),
    **_combine("max_f32", "atomic_max_f32"),
    **_combine("min_f32", "atomic_min_f32"),
}
