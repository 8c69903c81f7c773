"""A compiled spec as a function on arrays of the device.

A call checks its arguments, allocates the outputs with the library of the first input, and launches in the current
stream of that library.  After the first call, which loads the kernels, it is safe to record in a CUDA graph where that
library allocates: it neither waits for the device nor queries it.  :meth:`Kernel.prepare` does everything but the
launch, for callers that launch often on the same arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from nautilus.api.arrays import View, row_major, view
from nautilus.api.memory import empty, stream_of
from nautilus.api.signature import check_facts, check_tensor, numbers_of, value, variant_of
from nautilus.core.buffers import TensorMap
from nautilus.core.errors import InputError, ToolchainError
from nautilus.core.numerics import Array, storage_array
from nautilus.core.records import dataclass
from nautilus.core.text.words import counted
from nautilus.core.types import FORMATS, DType, Number
from nautilus.runtime.cuda_driver import MAX_DYNAMIC_SHARED
from nautilus.runtime.launch import Launch, encode
from nautilus.runtime.prepared import Prepared, cells_of, step
from nautilus.targets.limits import SMEM_WITHOUT_OPT_IN

_MAP_DTYPES = {f.tensor_map: d for d, f in FORMATS.items()}  # types of equal bits


@dataclass(frozen=True, slots=True)
class Ready:
    """Launches on certain arrays. ``outputs``: what they write; ``kept``: all memory that they use."""

    outputs: tuple[Any, ...]
    prepared: Prepared
    stream: int
    kept: tuple[Any, ...]

    def launch(self, stream: int | None = None) -> None:
        """Enqueue all kernels, in the stream of the preparation if none is given."""
        self.prepared.launch(self.stream if stream is None else stream)


class Kernel:
    """The kernels of one spec for one architecture."""

    def __init__(self, manifest: Mapping[str, Any], cubin: bytes, driver: Any = None, library: Any = None) -> None:
        """``manifest``: see :mod:`nautilus.export.manifest`. ``driver``, ``library``: not those of the machine."""
        self.manifest, self._cubin = manifest, cubin
        self._driver, self._library = driver, library
        self._functions: dict[int, dict[str, int]] = {}  # context -> kernel -> handle
        self._cooperative = [_cooperative(v) for v in manifest["variants"]]
        self._resident: dict[int, tuple[bool, ...]] = {}  # context -> the variants that its device runs
        self.inputs = tuple(t for t in manifest["tensors"] if t["role"] == "input")
        self.outputs = tuple(t for t in manifest["tensors"] if t["role"] == "output")

    def __repr__(self) -> str:
        listed = ", ".join(f"{t['name']}: {t['dtype']}{t['shape']}" for t in self.inputs)
        made = ", ".join(f"{t['name']}: {t['dtype']}{t['shape']}" for t in self.outputs)
        return f"<kernel {self.manifest['name']}({listed}) -> {made}, {self.manifest['arch']}>"

    def __call__(self, *inputs: Any, out: Any = None, stream: int | None = None, **scalars: Number) -> Any:
        """The output, or a tuple of them.

        ``inputs``: in the order of the spec.  ``out``: arrays for the outputs.  ``stream``: its handle; the current one
        of the inputs' library if it is not given.  ``scalars``: by name; runtime sizes are read from the shapes.
        Raises InputError, which names the tensor, and ToolchainError.
        """
        ready = self.prepare(*inputs, out=out, stream=stream, **scalars)
        ready.launch()
        return ready.outputs[0] if len(ready.outputs) == 1 else ready.outputs

    def prepare(self, *inputs: Any, out: Any = None, stream: int | None = None, **scalars: Number) -> Ready:
        """Everything but the launch: checks, outputs, scratch memory and tensor maps. Raises InputError."""
        if len(inputs) != len(self.inputs):
            names = ", ".join(t["name"] for t in self.inputs)
            taken = counted(len(self.inputs), "input")
            raise InputError(f"{self.manifest['name']} has {taken} ({names}), not {len(inputs)}")
        like = inputs[0] if inputs else None
        handle = stream_of(like) if stream is None else stream
        views = {t["name"]: view(t["name"], x, handle) for t, x in zip(self.inputs, inputs, strict=True)}
        given = () if out is None else tuple(out) if isinstance(out, (tuple, list)) else (out,)
        if given and len(given) != len(self.outputs):
            raise InputError(f"{self.manifest['name']} has {len(self.outputs)} outputs, not {len(given)}")
        views |= {t["name"]: view(t["name"], x, handle) for t, x in zip(self.outputs, given, strict=False)}
        functions = self._loaded()
        numbers = self._numbers(views, scalars, bool(given))
        made = given or tuple(self._output(t, numbers, like) for t in self.outputs)
        views |= {t["name"]: view(t["name"], x, handle) for t, x in zip(self.outputs, made, strict=True)}
        for t in self.manifest["tensors"]:
            check_tensor(t, views[t["name"]], numbers)
            self._check_device(t["name"], views[t["name"]])
        address = {name: v.address for name, v in views.items()}
        variant = self._variant(numbers, address)
        about = variant["workspace"]
        size = int(value(about["bytes"], numbers))
        scratch = empty((size,), DType.U8, like, self.driver) if size else None
        base = view("the workspace", scratch, handle).address if scratch is not None else 0
        if base % about["alignment"]:
            raise InputError(f"the address of the workspace is no multiple of {about['alignment']} bytes")
        address |= {name: base + int(value(at, numbers)) for name, at in about["temps"].items()}
        counter = self._counter(about["counter"], base, numbers, handle)
        prepared = self._prepared(variant, functions, address, numbers, counter)
        return Ready(made, prepared, handle, (inputs, made, scratch))

    @property
    def driver(self) -> Any:
        """The bindings of the driver."""
        if self._driver is None:
            from nautilus.runtime.device import bindings

            self._driver = bindings()
        return self._driver

    def _numbers(self, views: Mapping[str, View], scalars: Mapping[str, Number], all_given: bool) -> dict[str, Number]:
        numbers = numbers_of(self.manifest, views, scalars)
        strides = {x for t in self.outputs for x in t["strides"] if t["strided"] and isinstance(x, str)}
        for t in self.outputs if not all_given else ():
            shape = tuple(int(value(n, numbers)) for n in t["shape"])
            multiples = {s["name"]: s["multiple"] or 1 for s in self.manifest["scalars"]}
            for name, n in zip(t["strides"], row_major(shape), strict=True):
                odd = name in strides and numbers.setdefault(name, n) % multiples[name]
                if odd and t["alignment"] != t["itemsize"]:  # no variant takes any strides
                    raise InputError(f"{t['name']} needs rows at multiples of 16 bytes; give it with out=")
        check_facts(self.manifest, numbers)
        return numbers

    def _output(self, t: Mapping[str, Any], numbers: Mapping[str, Number], like: Any) -> Any:
        return empty(tuple(int(value(n, numbers)) for n in t["shape"]), DType(t["dtype"]), like, self.driver)

    def _loaded(self) -> Mapping[str, int]:
        """The handles of the kernels in the current context; without one, in the primary context of device 0."""
        from nautilus.runtime.device import check

        d = self.driver
        context = int(check(d, d.cuCtxGetCurrent(), "asking for the context"))
        if not context:
            device = check(d, d.cuDeviceGet(0), "opening the GPU")
            made = check(d, d.cuDevicePrimaryCtxRetain(device), "opening a context")
            check(d, d.cuCtxSetCurrent(made), "opening a context")
            context = int(made)
        if context not in self._functions:
            module = check(d, d.cuModuleLoadData(self._cubin), "loading the kernel")
            found = dict[str, int]()
            for launch in (x for v in self.manifest["variants"] for x in v["launches"]):
                name = launch["kernel"]
                function = check(d, d.cuModuleGetFunction(module, name.encode()), f"looking up {name}")
                if launch["shared"] > SMEM_WITHOUT_OPT_IN:
                    check(d, d.cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, launch["shared"]), f"preparing {name}")
                found[name] = int(function)
            self._functions[context] = found
        return self._functions[context]

    def _variant(self, numbers: Mapping[str, Number], address: Mapping[str, int]) -> Mapping[str, Any]:
        """The variant that a launch runs. Raises ToolchainError where the device does not run it."""
        if not any(self._cooperative):
            return variant_of(self.manifest, numbers, address)
        from nautilus.runtime.device import check

        d = self.driver
        context = int(check(d, d.cuCtxGetCurrent(), "asking for the context"))
        if context not in self._resident:
            self._resident[context] = tuple(all(map(self._is_co_resident, launches)) for launches in self._cooperative)
        resident = self._resident[context]
        found = variant_of(self.manifest, numbers, address, resident)
        if not all(resident) and not resident[self.manifest["variants"].index(found)]:
            need = " and ".join(f"all {prod(a['grid'])} blocks of {a['kernel']}" for a in _cooperative(found))
            raise ToolchainError("launch", f"{self.manifest['name']} needs {need} at the same time, unlike the device")
        return found

    def _is_co_resident(self, about: Mapping[str, Any]) -> bool:
        """Whether the current device runs all blocks of a cooperative launch at the same time."""
        from nautilus.runtime.device import check, co_resident_blocks

        d, function = self.driver, self._loaded()[about["kernel"]]
        device = int(check(d, d.cuCtxGetDevice(), "asking for the device"))
        found = co_resident_blocks(d, device, function, prod(about["block"]), about["shared"])
        return found >= int(prod(about["grid"]))

    def _check_device(self, name: str, v: View) -> None:
        from nautilus.runtime.device import check

        here = int(check(self.driver, self.driver.cuCtxGetDevice(), "asking for the device"))
        if v.device not in (None, here):
            raise InputError(f"{name} is on device {v.device}, but the current device is {here}")

    def _counter(self, at: Any, base: int, numbers: Mapping[str, Number], stream: int) -> int:
        """The address of the tile counter, which is cleared in ``stream``; 0 without one."""
        from nautilus.runtime.device import check

        if at is None:
            return 0
        address = base + int(value(at, numbers))
        check(self.driver, self.driver.cuMemsetD8Async(address, 0, 4, stream), "clearing the counter of tiles")
        return address

    def _prepared(
        self, variant: Mapping[str, Any], functions: Mapping[str, int], address: Mapping[str, int],
        numbers: Mapping[str, Number], counter: int,
    ) -> Prepared:  # fmt: skip
        maps = {m["name"]: tensor_map(m, numbers) for m in variant["tensor_maps"]}
        scalars = {
            s["name"]: storage_array(np.asarray(numbers[s["name"]]), DType(s["dtype"])).reshape(1)
            for s in self.manifest["scalars"]
        }
        filled = max(address[t["name"]] for t in self.outputs)

        def base(m: TensorMap) -> int:  # a tensor without elements may have no address, but a map has one
            return address[m.buffer] or filled

        steps = []
        for about in variant["launches"]:
            launch = launch_of(about, numbers, maps)
            if prod(launch.grid):
                encoded: dict[str, Array] = {m.name: encode(self.driver, m, base(m)) for m in launch.maps}
                cells = cells_of(launch, address, scalars, encoded, counter)
                steps.append(step(launch, functions[launch.kernel], cells))
        return Prepared(steps, self._library)


def _cooperative(variant: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The launches of a variant whose blocks all run at the same time."""
    return [about for about in variant["launches"] if about.get("cooperative", False)]


def launch_of(about: Mapping[str, Any], numbers: Mapping[str, Number], maps: Mapping[str, TensorMap]) -> Launch:
    """A launch of a manifest at the sizes in ``numbers``."""
    parameters: Sequence[Sequence[str]] = about["parameters"]
    x, y, z = (int(value(n, numbers)) for n in about["grid"])
    return Launch(
        about["kernel"], (x, y, z), tuple(about["block"]), about["shared"],
        tuple(name for kind, name in parameters if kind not in ("map", "counter")),
        tuple(maps[name] for kind, name in parameters if kind == "map"),
        about["cluster"][0], any(kind == "counter" for kind, _ in parameters), about["programmatic"],
        about.get("cooperative", False),
    )  # fmt: skip


def tensor_map(about: Mapping[str, Any], numbers: Mapping[str, Number]) -> TensorMap:
    """A tensor map of a manifest at the sizes in ``numbers``."""
    sizes, strides = (tuple(int(value(n, numbers)) for n in about[key]) for key in ("sizes", "strides"))
    dtype, stream = _MAP_DTYPES[about["dtype"]], about["promotion"] == "L2_128B"
    return TensorMap(
        about["name"], about["tensor"], dtype, sizes, strides, tuple(about["box"]), about["swizzle"], stream
    )
