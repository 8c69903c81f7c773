"""Tensor maps in the host text: their fields as C arrays, and the call that encodes them.

The driver's function is looked up once in a process, through the runtime, so that no ``-lcuda`` is needed.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.buffers import Space, TensorMap
from nautilus.core.index.sizes import Extent
from nautilus.core.types import FORMATS, DType
from nautilus.cuda.host.extents import extent_text
from nautilus.cuda.host.workspace import workspace_offsets
from nautilus.cuda.names import allocate, module_names
from nautilus.cuda.tensor_maps import kernel_maps
from nautilus.ma_tile.ir import ops as ma

LOOK_UP = """typedef CUresult (*EncodeTiled)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static EncodeTiled find_encode() {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    const char* name = "cuTensorMapEncodeTiled";
    const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
    const bool usable = status == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return usable ? reinterpret_cast<EncodeTiled>(function) : nullptr;
}
"""

ENCODE = """static cudaError_t encode_map(TensorMap* map, CUtensorMapDataType type, int rank, const void* base,
                              const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                              CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion) {
    static_assert(sizeof(TensorMap) == sizeof(CUtensorMap), "a tensor map has 128 bytes");
    static const EncodeTiled encode = find_encode();
    if (!encode) return cudaErrorNotSupported;
    const cuuint32_t ones[5] = {1, 1, 1, 1, 1};
    CUtensorMap made;
    const CUresult result = encode(
        &made, type, rank, const_cast<void*>(base), sizes, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) return cudaErrorInvalidValue;
    memcpy(map, &made, sizeof made);
    return cudaSuccess;
}
"""


def map_fields(module: ma.MemModule) -> Mapping[tuple[str, str], str]:
    """Kernel and map -> the field of a plan that holds the map."""
    names = module_names(module)
    maps = [(k.name, m.name) for k in module.kernels for m in kernel_maps(module, k)]
    taken = {*names.arguments.values(), names.scratch, names.stream}
    labels = [m if len({k for k, other in maps if other == m}) == 1 else f"{m}_of_{k}" for k, m in maps]
    return dict(zip(maps, allocate(labels, taken).values(), strict=True))


def encode_lines(module: ma.MemModule, kernel: ma.MemKernel) -> list[str]:
    """Lines that encode the maps of ``kernel`` into a plan."""
    fields, arguments = map_fields(module), module_names(module).arguments
    lines = list[str]()
    for m in kernel_maps(module, kernel):
        base = f"plan->{arguments[m.buffer]}"
        if m.buffer not in workspace_offsets(module)[0] and not all(isinstance(n, int) for n in m.sizes):
            other = next(b.name for b in module.buffers if b.space is Space.OUTPUT)
            base = f"{base} ? (const void*){base} : plan->{arguments[other]}"  # without elements it may have no address
        lines += _encode(m, f"plan->{fields[kernel.name, m.name]}", base, module, arguments)
    return lines


def _encode(m: TensorMap, target: str, base: str, module: ma.MemModule, arguments: Mapping[str, str]) -> list[str]:
    sizes = {p.name: p.multiple for p in module.params if p.most is not None and p.dtype is DType.I32}
    filled = {  # a map has no empty axis
        name: f"({c} > 0 ? {c} : {sizes[name]})" if name in sizes else c for name, c in arguments.items()
    }

    def array(name: str, kind: str, values: tuple[Extent, ...]) -> str:
        texts = [f"{'' if isinstance(n, int) else f'({kind})'}{extent_text(n, filled, 3)}" for n in values]
        return f"        const {kind} {name}[] = {{{', '.join(texts) or '0'}}};"

    kind = FORMATS[m.dtype].tensor_map
    swizzle = f"CU_TENSOR_MAP_SWIZZLE_{m.swizzle}B" if m.swizzle else "CU_TENSOR_MAP_SWIZZLE_NONE"
    return [
        "    {",
        array("sizes", "cuuint64_t", m.sizes),
        array("strides", "cuuint64_t", m.strides),
        array("box", "cuuint32_t", m.box),
        f"        status = encode_map(&{target}, CU_TENSOR_MAP_DATA_TYPE_{kind}, {len(m.sizes)}, {base},",
        f"                            sizes, strides, box, {swizzle}, CU_TENSOR_MAP_L2_PROMOTION_{m.promotion});",
        "        if (status != cudaSuccess) return status;",
        "    }",
    ]
