"""Launches a bare cubin by its manifest, with cuda-bindings and nothing of nautilusc.

    nautilusc specs/rowwise/softmax.naut -o softmax.cubin --arch sm_90a
    python specs/examples/load_manifest.py softmax.cubin

The command allocates zeros for the inputs, launches once and prints a checksum; numbers without a default follow the
file, as in ``N=4096``.  In a program::

    kernel = Kernel(Path("softmax.cubin"))
    plan = kernel.prepare({"X": address, "Y": address}, {}, workspace)  # once; addresses are integers
    plan.launch(stream)                                                 # as often as is wanted
"""

from __future__ import annotations

import ctypes
import json
import operator
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cuda.bindings import driver

NAMED = ("add", "sub", "mul", "lt", "le", "gt", "ge", "eq", "ne", "neg", "abs")
OPS = {
    **{name: getattr(operator, name) for name in NAMED},
    "i64": int, "i32": int, "f64": float, "f32": float,
    "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0, "min": min, "max": max,
    "and": lambda a, b: a and b, "or": lambda a, b: a or b, "not": operator.not_, "div": operator.truediv,
}  # fmt: skip
TYPES = {"f64": ctypes.c_double, "f32": ctypes.c_float, "i64": ctypes.c_int64, "i32": ctypes.c_int32,
         "i16": ctypes.c_int16, "i8": ctypes.c_int8, "u8": ctypes.c_uint8, "bool": ctypes.c_bool}  # fmt: skip


def value(extent: Any, scalars: Mapping[Any, Any]) -> Any:
    """The number of an extent or a condition of the manifest; other facts are of pairs as ``("co_resident", 0)``."""
    if isinstance(extent, list):
        if extent[0] in ("address", "co_resident"):
            return scalars[tuple(extent)]
        return OPS[extent[0]](*(value(part, scalars) for part in extent[1:]))
    return scalars[extent] if isinstance(extent, str) else extent


def argument(dtype: str, number: float) -> Any:
    """A scalar as kernels take it: 16-bit floats as their bits, to nearest even."""
    if dtype == "f16":
        return ctypes.c_uint16.from_buffer_copy(struct.pack("<e", number))
    if dtype == "bf16":
        bits = int.from_bytes(struct.pack("<f", number), "little")
        return ctypes.c_uint16((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    return TYPES[dtype](int(number) if dtype[0] in "iu" else number)


def check(result: tuple[Any, ...]) -> Any:
    """The value of a call of the driver. Raises RuntimeError."""
    if result[0] != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(result[0].name)
    return result[1] if len(result) == 2 else result[1:]


class Plan:
    """The launches of a kernel with their arguments; they keep what they point to."""

    def __init__(self, launches: list[tuple[Any, Any, Any]]) -> None:
        self.launches = launches

    def launch(self, stream: Any = 0) -> None:
        """Enqueue all kernels in order."""
        for config, function, pointers in self.launches:
            config.hStream = stream
            check(driver.cuLaunchKernelEx(config, function, ctypes.addressof(pointers[0]), 0))


class Kernel:
    """A cubin that is loaded into the current context."""

    def __init__(self, cubin: Path) -> None:
        self.manifest = json.loads(cubin.with_suffix(".manifest.json").read_text())
        self.module = check(driver.cuModuleLoadData(cubin.read_bytes()))
        self.functions = {}
        for launch in (x for variant in self.manifest["variants"] for x in variant["launches"]):
            function = check(driver.cuModuleGetFunction(self.module, launch["kernel"].encode()))
            key = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            if launch["shared"] > 48 * 1024:
                check(driver.cuFuncSetAttribute(function, key, launch["shared"]))
            self.functions[launch["kernel"]] = function
        variants = self.manifest["variants"]
        self.co_resident = [all(map(self._is_co_resident, variant["launches"])) for variant in variants]

    def _is_co_resident(self, launch: Mapping[str, Any]) -> bool:
        """Whether the device of the context runs a launch: all blocks of a cooperative one run at the same time."""
        if not launch["cooperative"]:
            return True
        device, threads = check(driver.cuCtxGetDevice()), launch["block"][0] * launch["block"][1] * launch["block"][2]
        asked = driver.CUdevice_attribute
        allowed, multiprocessors = (check(driver.cuDeviceGetAttribute(x, device)) for x in (
            asked.CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, asked.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT))  # fmt: skip
        function = self.functions[launch["kernel"]]
        each = check(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, launch["shared"]))
        x, y, z = launch["grid"]
        return bool(allowed) and each * multiprocessors >= x * y * z

    def variant(self, tensors: Mapping[str, int], scalars: Mapping[str, Any]) -> Any:
        """What a launch at these sizes, strides and addresses runs on the device. Raises ValueError where it cannot."""
        known = {**scalars, **{("address", name): at for name, at in tensors.items()}}
        known |= {("co_resident", n): resident for n, resident in enumerate(self.co_resident)}
        found = self.manifest["dispatch"]
        while not isinstance(found, int):
            found = found["then"] if value(found["if"], known) else found["else"]
        if not self.co_resident[found]:
            raise ValueError("the device does not run all blocks of a cooperative launch at the same time")
        return self.manifest["variants"][found]

    def workspace(self, tensors: Mapping[str, int], scalars: Mapping[str, Any]) -> int:
        """Bytes of scratch memory."""
        return value(self.variant(tensors, scalars)["workspace"]["bytes"], scalars)

    def prepare(self, tensors: Mapping[str, int], scalars: Mapping[str, Any], workspace: int = 0) -> Plan:
        """Encode the tensor maps and fix the arguments. ``tensors``: the address of each tensor."""
        variant = self.variant(tensors, scalars)
        about = variant["workspace"]
        for fact in self.manifest["facts"]:
            if not value(fact["condition"], scalars):
                raise ValueError(f"'{fact['text']}' does not hold")
        for tensor in self.manifest["tensors"]:
            if tensors[tensor["name"]] % tensor["alignment"]:
                raise ValueError(f"the address of {tensor['name']} is no multiple of {tensor['alignment']}")
        address = dict(tensors) | {n: workspace + value(at, scalars) for n, at in about["temps"].items()}
        if about["counter"] is not None:
            address[""] = workspace + value(about["counter"], scalars)
            check(driver.cuMemsetD8(address[""], 0, 4))
        written = [address[t["name"]] for t in self.manifest["tensors"] if t["role"] == "output"]
        filled = max(written)  # a tensor without elements may have no address, but a map has one
        maps = {m["name"]: self._encode(m, address[m["tensor"]] or filled, scalars) for m in variant["tensor_maps"]}
        dtypes = {s["name"]: s["dtype"] for s in self.manifest["scalars"]}
        launches = []
        for launch in variant["launches"]:
            cells: list[Any] = []
            for kind, name in launch["parameters"]:
                if kind == "map":
                    cells.append(maps[name])
                else:
                    scalar = kind == "scalar"
                    cells.append(argument(dtypes[name], scalars[name]) if scalar else ctypes.c_uint64(address[name]))
            pointers = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(c) for c in cells))
            config = driver.CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = (value(n, scalars) for n in launch["grid"])
            config.blockDimX, config.blockDimY, config.blockDimZ = launch["block"]
            config.sharedMemBytes = launch["shared"]
            if launch["programmatic"]:
                attribute = driver.CUlaunchAttribute()
                attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
                attribute.value.programmaticStreamSerializationAllowed = 1
                config.attrs, config.numAttrs = [attribute], 1
            if launch["cooperative"]:
                attribute = driver.CUlaunchAttribute()
                attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
                attribute.value.cooperative = 1
                config.attrs, config.numAttrs = [attribute], 1
            if config.gridDimX:
                launches.append((config, self.functions[launch["kernel"]], (pointers, cells)))
        return Plan(launches)

    def _encode(self, m: dict[str, Any], base: int, scalars: Mapping[str, Any]) -> Any:
        """The 128 bytes of a tensor map, at a multiple of 64."""
        swizzle = f"{m['swizzle']}B" if m["swizzle"] else "NONE"
        made = check(driver.cuTensorMapEncodeTiled(
            getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{m['dtype']}"), len(m["sizes"]), base,
            [driver.cuuint64_t(value(n, scalars)) for n in m["sizes"]],
            [driver.cuuint64_t(value(n, scalars)) for n in m["strides"]],
            [driver.cuuint32_t(n) for n in m["box"]], [driver.cuuint32_t(1)] * len(m["box"]),
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
            getattr(driver.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{m['promotion']}"),
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ))  # fmt: skip
        room = ctypes.create_string_buffer(128 + 64)
        aligned = (ctypes.c_uint64 * 16).from_buffer(room, -ctypes.addressof(room) % 64)
        aligned[:] = [int(word) for word in made.opaque]
        return aligned


def numbers(manifest: Mapping[str, Any], words: list[str]) -> dict[str, Any]:
    """The scalars of ``NAME=VALUE`` words, and defaults. Raises SystemExit for one without a value."""
    known = {s["name"]: s["default"] for s in manifest["scalars"]}
    known |= {name: float(text) for name, _, text in (w.partition("=") for w in words)}
    if missing := [name for name, number in known.items() if number is None]:
        sys.exit(f"give a value: {' '.join(f'{name}=...' for name in missing)}")
    integers = {s["name"] for s in manifest["scalars"] if s["dtype"][0] in "iu"}
    return {name: int(number) if name in integers else number for name, number in known.items()}


def main(path: Path, words: list[str]) -> None:
    """Run once on zeros, and print the sum of the bytes of each output."""
    check(driver.cuInit(0))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(0))))))
    kernel = Kernel(path)
    scalars = numbers(kernel.manifest, words)
    sizes = {}
    for t in kernel.manifest["tensors"]:
        sizes[t["name"]] = t["itemsize"]
        for n in t["shape"]:
            sizes[t["name"]] *= value(n, scalars)
    memory = {name: check(driver.cuMemAlloc(max(size, 16))) for name, size in sizes.items()}
    for name, size in sizes.items():
        check(driver.cuMemsetD8(memory[name], 0, max(size, 16)))
    tensors = {name: int(p) for name, p in memory.items()}
    workspace = check(driver.cuMemAlloc(max(kernel.workspace(tensors, scalars), 16)))
    kernel.prepare(tensors, scalars, int(workspace)).launch()
    check(driver.cuCtxSynchronize())
    for t in kernel.manifest["tensors"]:
        if t["role"] == "output":
            host = bytearray(sizes[t["name"]])
            check(driver.cuMemcpyDtoH(host, memory[t["name"]], len(host)))
            print(f"{t['name']}: {len(host)} bytes, sum {sum(host)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
