"""The ``extern "C"`` host launcher at the end of a ``.cu`` file, for nvcc only.

``int NAME_launch(inputs..., outputs..., scalars..., void* workspace, cudaStream_t stream)`` launches every
kernel in order and returns the first CUDA error (0: none).  ``size_t NAME_workspace(void)`` gives
the bytes of scratch memory that ``workspace`` must point to (0: it may be null).  The suffixes keep a
spec called ``main`` or ``printf`` from redefining a C function.

Sizes that are known only at launch stand among the scalars, and ``NAME_workspace(int M, ...)`` takes those that scratch
memory depends on.  The launcher refuses a size beyond its bound, numbers for which a fact of the spec does not hold,
and a tensor with strides whose address is no multiple of 16 bytes.  It launches no kernel whose grid is empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nautilus.core.buffers import Buffer, Fact, Space, TensorMap
from nautilus.core.errors import InternalError, UnsupportedError
from nautilus.core.expr.nodes import Const, Expr, Op, Param, walk
from nautilus.core.index.sizes import Extent, as_extent, extent_expr, rounded_up, total, volume
from nautilus.core.text.expressions import format_expr
from nautilus.core.types import FORMATS, DType
from nautilus.cuda.ctypes import memory_type
from nautilus.cuda.names import allocate, module_names
from nautilus.cuda.ops.tile_scheduler import uses_counter
from nautilus.cuda.tensor_maps import kernel_maps
from nautilus.ma_tile.ir import ops as ma

_ALIGN = 256
MOST_BLOCKS = 2**31 - 1  # of a launch in one dimension


def buffer_bytes(b: Buffer) -> Extent:
    """Size of a buffer in bytes."""
    return volume((*b.shape, b.dtype.bytes))


def workspace_offsets(module: ma.MemModule) -> tuple[dict[str, Extent], Extent]:
    """Byte offset of every temp in the workspace, and the workspace's size."""
    offsets: dict[str, Extent] = {}
    end: Extent = 0
    for b in module.buffers:
        if b.space is Space.TEMP:
            offsets[b.name] = end
            end = total(end, rounded_up(buffer_bytes(b), _ALIGN))
    return offsets, end


def _text(e: Extent, names: Mapping[str, str], level: int = 0) -> str:
    """C text of an extent, in 64 bits; ``level``: how strongly the operator around it binds (1: sum, 2: product)."""
    match e:
        case int():
            return str(e)
        case Const(value=value):
            return str(value)
        case Param(name=name):
            return f"(long long){names[name]}"
        case Op(op="min" | "max" as op, args=(a, b)):
            x, y = _text(a, names, 1), _text(b, names, 1)
            return f"({x} {'<' if op == 'min' else '>'} {y} ? {x} : {y})"
        case Op(op=op, args=(a, b)):
            symbol, own = _SYMBOLS[op]
            text = f"{_text(a, names, own)} {symbol} {_text(b, names, own + 1)}"
            return f"({text})" if own < level else text
    raise InternalError(f"no extent: {e!r}")


_SYMBOLS = {"add": ("+", 1), "sub": ("-", 1), "mul": ("*", 2), "floordiv": ("/", 2), "mod": ("%", 2)}


def workspace_sizes(module: ma.MemModule) -> tuple[str, ...]:
    """The runtime sizes that the size of the workspace depends on, in the order of the module's params."""
    found = {n.name for n in walk(extent_expr(workspace_offsets(module)[1])) if isinstance(n, Param)}
    return tuple(p.name for p in module.params if p.name in found)


def scalar_type(dtype: DType) -> str:
    """C type of a scalar argument."""
    return "bool" if dtype is DType.BOOL else memory_type(dtype)


def kernel_symbol(module: ma.MemModule, kernel: ma.MemKernel) -> str:
    """Name of the ``__global__`` function."""
    return module_names(module).kernels[kernel.name]


def launcher(module: ma.MemModule) -> str:
    """Text of the host part."""
    names = module_names(module)
    offsets, size = workspace_offsets(module)
    size = total(size, _ALIGN * any(uses_counter(k) for k in module.kernels))
    args: list[str] = []
    params: list[str] = []
    for b in module.buffers:
        c = names.arguments[b.name]
        if b.space is Space.TEMP:
            at = f"static_cast<char*>(workspace) + {_text(offsets[b.name], names.arguments, 2)}"
            args.append(f"reinterpret_cast<{memory_type(b.dtype)}*>({at})")
            continue
        const = "const " if b.space is Space.INPUT else ""
        params.append(f"{const}void* {c}")
        args.append(f"static_cast<{const}{memory_type(b.dtype)}*>({c})")
    for p in module.params:
        params.append(f"{scalar_type(p.dtype)} {names.arguments[p.name]}")
        args.append(names.arguments[p.name])
    listed = ", ".join(args)
    sized = ", ".join(f"int {names.arguments[name]}" for name in workspace_sizes(module))
    lines = [
        "#ifndef __CUDACC_RTC__",
        "#include <cuda_runtime.h>",
        *_fact_helpers(module.facts),
        "",
        f'extern "C" size_t {names.workspace}({sized or "void"}) {{ return {_text(size, names.arguments)}; }}',
        "",
        f'extern "C" int {names.launch}({", ".join([*params, "void* workspace", "cudaStream_t stream"])}) {{',
        "    (void)workspace;",
        "    cudaError_t status = cudaSuccess;",
        *(
            f"    if ({n} < 0 || {n} > {p.most}) return cudaErrorInvalidValue;"
            for p in module.params
            if p.most is not None and (n := names.arguments[p.name])
        ),
        *_fact_checks(module.facts, names.arguments, module.name),
        *(
            f"    if (reinterpret_cast<size_t>({names.arguments[b.name]}) % 16) return cudaErrorMisalignedAddress;"
            for b in module.buffers
            if b.strides is not None
        ),
    ]
    if any(kernel_maps(module, k) for k in module.kernels):
        lines[2:2] = _ENCODE.splitlines()
    for k in module.kernels:
        inner = _launch(module, k, listed)
        lines += ["    {", *("    " + line for line in inner), "    }"] if kernel_maps(module, k) else inner
    lines += ["    return status;", "}", "#endif", ""]
    return "\n".join(lines)


# ---- facts: in 64-bit integers and double; // and % round towards minus infinity, as they do in a spec
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "and": "&&", "or": "||", "bit_and": "&", "bit_or": "|", "bit_xor": "^",
}  # fmt: skip
_PREFIX = {"neg": "-", "not": "!", "bit_not": "~"}
_CALLS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "exp": "exp", "log": "log"}

_MOD = "static long long floor_mod(long long a, long long b) { return (a % b + b) % b; }"
_DIV = "static long long floor_div(long long a, long long b) { return (a - floor_mod(a, b)) / b; }"


def _fact_helpers(facts: Sequence[Fact]) -> list[str]:
    """What the checks need before the launcher."""
    if not facts:
        return []
    used = {n.op for f in facts for n in walk(f.condition) if isinstance(n, Op)}
    division = [_MOD] if used & {"mod", "floordiv"} else []
    return ["#include <math.h>", "#include <stdio.h>", *division, *([_DIV] if "floordiv" in used else [])]


def _fact_checks(facts: Sequence[Fact], names: Mapping[str, str], spec: str) -> list[str]:
    """Lines of the launcher that refuse numbers for which a fact does not hold, with its text.

    Raises UnsupportedError for a fact that has no C text.
    """
    lines = list[str]()
    for f in facts:
        said = f"{spec}: '{f.said}' does not hold"
        said = said.replace("\\", "").replace('"', "'").replace("%", "%%")
        lines += [
            f"    if (!{_condition(f.condition, names)}) {{",
            f'        fprintf(stderr, "{said}\\n");',
            "        return cudaErrorInvalidValue;",
            "    }",
        ]
    return lines


def _condition(e: Expr, names: Mapping[str, str]) -> str:
    """C text of an expression of numbers given at launch, in parentheses."""
    match e:
        case Const(value=bool() as value):
            return "true" if value else "false"
        case Const(value=value):
            return f"{value}LL" if e.dtype.is_int else _double(float(value))
        case Param(name=name):
            wide = "long long" if e.dtype.is_int else "double" if e.dtype.is_float else "bool"
            return f"({wide}){names[name]}"
        case Op(op=op, args=(a, b)) if op in _INFIX:
            return f"({_condition(a, names)} {_INFIX[op]} {_condition(b, names)})"
        case Op(op="floordiv" | "mod" as op, args=(a, b)) if e.dtype.is_int:
            name = "floor_div" if op == "floordiv" else "floor_mod"
            return f"{name}({_condition(a, names)}, {_condition(b, names)})"
        case Op(op="min" | "max" as op, args=(a, b)):
            x, y = _condition(a, names), _condition(b, names)
            return f"({x} {'<' if op == 'min' else '>'} {y} ? {x} : {y})"
        case Op(op="select", args=(c, a, b)):
            return f"({_condition(c, names)} ? {_condition(a, names)} : {_condition(b, names)})"
        case Op(op="neg" | "not" | "bit_not" as op, args=(a,)):
            return f"({_PREFIX[op]}{_condition(a, names)})"
        case Op(op="shift_left" | "shift_right" as op, args=(a, Const(value=n))) if 0 <= n < 32:
            return f"({_condition(a, names)} {'<<' if op == 'shift_left' else '>>'} {n})"
        case Op(op="abs", args=(a,)):
            return f"fabs({_condition(a, names)})" if e.dtype.is_float else f"llabs({_condition(a, names)})"
        case Op(op="cast", args=(a,)):
            return f"({'long long' if e.dtype.is_int else 'double'}){_condition(a, names)}"
        case Op(op=op, args=(a,)) if op in _CALLS:
            return f"{_CALLS[op]}({_condition(a, names)})"
    what = f"'{format_expr(e)}' in a fact about numbers given at launch"
    raise UnsupportedError(what, "it has no text for the host", e.span)


def _double(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return "NAN" if value != value else "INFINITY" if value > 0 else "-INFINITY"
    return repr(value)


# ---- launches
#: Encodes one tensor map: the driver's function is looked up through the runtime, so that no -lcuda is needed.
_ENCODE = """#include <cuda.h>
#include <string.h>

typedef CUresult (*EncodeTiled)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static cudaError_t encode_map(TensorMap* map, CUtensorMapDataType type, int rank, const void* base,
                              const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                              CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion) {
    static_assert(sizeof(TensorMap) == sizeof(CUtensorMap), "a tensor map has 128 bytes");
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    const char* name = "cuTensorMapEncodeTiled";
    const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
    if (status != cudaSuccess) return status;
    if (found != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
    const cuuint32_t ones[5] = {1, 1, 1, 1, 1};
    CUtensorMap made;
    const CUresult result = reinterpret_cast<EncodeTiled>(function)(
        &made, type, rank, const_cast<void*>(base), sizes, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) return cudaErrorInvalidValue;
    memcpy(map, &made, sizeof made);
    return cudaSuccess;
}
"""


def _encode(m: TensorMap, name: str, base: str, module: ma.MemModule, arguments: Mapping[str, str]) -> list[str]:
    sizes = {p.name: p.multiple for p in module.params if p.most is not None and p.dtype is DType.I32}
    filled = {  # a map has no empty axis
        name: f"({c} > 0 ? {c} : {sizes[name]})" if name in sizes else c for name, c in arguments.items()
    }

    def array(kind: str, values: tuple[Extent, ...]) -> str:
        texts = [f"{'' if isinstance(n, int) else f'({kind})'}{_text(n, filled, 3)}" for n in values]
        return f"const {kind} {{name}}[] = {{{{{', '.join(texts) or '0'}}}}};"

    kind = FORMATS[m.dtype].tensor_map
    swizzle = f"CU_TENSOR_MAP_SWIZZLE_{m.swizzle}B" if m.swizzle else "CU_TENSOR_MAP_SWIZZLE_NONE"
    return [
        f"    TensorMap {name};",
        "    {",
        *(
            "        " + array(kind, values).format(name=label)
            for label, kind, values in (
                ("sizes", "cuuint64_t", m.sizes),
                ("strides", "cuuint64_t", m.strides),
                ("box", "cuuint32_t", m.box),
            )
        ),
        f"        status = encode_map(&{name}, CU_TENSOR_MAP_DATA_TYPE_{kind}, {len(m.sizes)}, {base},",
        f"                            sizes, strides, box, {swizzle}, CU_TENSOR_MAP_L2_PROMOTION_{m.promotion});",
        "    }",
        "    if (status != cudaSuccess) return status;",
    ]


def _dependent_launch(k: ma.MemKernel, kernel: str, args: str, blocks: str) -> list[str]:
    """A programmatic dependent launch (CUDA Runtime API, cudaLaunchKernelEx)."""
    return [
        "    {",
        "        cudaLaunchAttribute attribute = {};",
        "        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;",
        "        attribute.val.programmaticStreamSerializationAllowed = 1;",
        "        cudaLaunchConfig_t config = {};",
        f"        config.gridDim = {blocks};",
        f"        config.blockDim = {32 * k.warps};",
        f"        config.dynamicSmemBytes = {k.smem_bytes};",
        "        config.stream = stream;",
        "        config.attrs = &attribute;",
        "        config.numAttrs = 1;",
        f"        status = cudaLaunchKernelEx(&config, {kernel}, {args});",
        "    }",
    ]


def _launch(module: ma.MemModule, k: ma.MemKernel, args: str) -> list[str]:
    smem, kernel = k.smem_bytes, kernel_symbol(module, k)
    offsets, lines = workspace_offsets(module)[0], list[str]()
    arguments = module_names(module).arguments
    maps = kernel_maps(module, k)
    names = allocate((m.name for m in maps), arguments.values())
    for m in maps:
        base = arguments[m.buffer]
        if m.buffer not in offsets and not all(isinstance(n, int) for n in m.sizes):
            other = next(b.name for b in module.buffers if b.space is Space.OUTPUT)
            base = f"{base} ? {base} : {arguments[other]}"  # a tensor without elements may have no address
        if m.buffer in offsets:
            base = f"static_cast<char*>(workspace) + {_text(offsets[m.buffer], arguments, 2)}"
        lines += _encode(m, names[m.name], base, module, arguments)
        args += f", {names[m.name]}"
    if uses_counter(k):
        at = f"static_cast<char*>(workspace) + {_text(workspace_offsets(module)[1], arguments, 2)}"
        lines += [
            f"    status = cudaMemsetAsync({at}, 0, sizeof(u32), stream);",
            "    if (status != cudaSuccess) return status;",
        ]
        args += f", reinterpret_cast<u32*>({at})"
    if smem > 48 * 1024:
        attribute = f"cudaFuncAttributeMaxDynamicSharedMemorySize, {smem}"
        lines += [
            f"    status = cudaFuncSetAttribute({kernel}, {attribute});",
            "    if (status != cudaSuccess) return status;",
        ]
    blocks = as_extent(k.blocks)
    count = str(blocks) if isinstance(blocks, int) else "(unsigned)blocks"
    if k.pdl:
        lines += _dependent_launch(k, kernel, args, count)
    else:
        lines += [
            f"    {kernel}<<<{count}, {32 * k.warps}, {smem}, stream>>>({args});",
            "    status = cudaGetLastError();",
        ]
    lines.append("    if (status != cudaSuccess) return status;")
    if isinstance(blocks, int):
        return lines
    return [
        "    {",
        f"        const long long blocks = {_text(blocks, arguments)};",
        f"        if (blocks > {MOST_BLOCKS}) return cudaErrorInvalidConfiguration;",
        "        if (blocks > 0) {",
        *(f"        {line}" for line in lines),
        "        }",
        "    }",
    ]
