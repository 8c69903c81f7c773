"""The CUDA driver through ctypes: the functions that the runtime and its tests call, by a table of their parameters.

The binary interface of the driver is stable, and some forty of its functions are called.  A package of bindings for
all of CUDA takes 30 MB, more than the rest of the compiler; this table takes its place.  Names and numbers are those
of ``cuda.h`` (CUDA Driver API); a function with a newer form is called by the name of that form, as ``cuda.h`` does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import Any

LIBRARY = "libcuda.so.1"
SUCCESS = 0

#: the attributes of a device that are asked for (CUdevice_attribute)
DEVICE_ATTRIBUTES = {
    "MULTIPROCESSOR_COUNT": 16,
    "COMPUTE_CAPABILITY_MAJOR": 75,
    "COMPUTE_CAPABILITY_MINOR": 76,
    "COOPERATIVE_LAUNCH": 95,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 97,
}
#: CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
MAX_DYNAMIC_SHARED = 8

#: the element types of a tensor map (CUtensorMapDataType), without their prefix, in the order of their numbers
MAP_TYPES = ("UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64", "FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16")
#: CUtensorMapSwizzle by bytes, and CUtensorMapL2promotion
MAP_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
MAP_PROMOTIONS = ("NONE", "L2_64B", "L2_128B", "L2_256B")

_HANDLE, _ADDRESS, _STREAM = c_void_p, c_uint64, c_void_p

#: by the name of a function: the types of its results, which are its first parameters, and of the other parameters
_FUNCTIONS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "cuInit": ((), (c_uint,)),
    "cuDriverGetVersion": ((c_int,), ()),
    "cuDeviceGet": ((c_int,), (c_int,)),
    "cuDeviceGetAttribute": ((c_int,), (c_int, c_int)),
    "cuDeviceTotalMem": ((c_size_t,), (c_int,)),
    "cuDevicePrimaryCtxRetain": ((_HANDLE,), (c_int,)),
    "cuDevicePrimaryCtxRelease": ((), (c_int,)),
    "cuCtxGetCurrent": ((_HANDLE,), ()),
    "cuCtxSetCurrent": ((), (_HANDLE,)),
    "cuCtxGetDevice": ((c_int,), ()),
    "cuCtxSynchronize": ((), ()),
    "cuModuleLoadData": ((_HANDLE,), (c_char_p,)),
    "cuModuleGetFunction": ((_HANDLE,), (_HANDLE, c_char_p)),
    "cuModuleUnload": ((), (_HANDLE,)),
    "cuFuncSetAttribute": ((), (_HANDLE, c_int, c_int)),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": ((c_int,), (_HANDLE, c_int, c_size_t)),
    "cuMemAlloc": ((_ADDRESS,), (c_size_t,)),
    "cuMemFree": ((), (_ADDRESS,)),
    "cuMemcpyHtoD": ((), (_ADDRESS, c_void_p, c_size_t)),
    "cuMemcpyDtoH": ((), (c_void_p, _ADDRESS, c_size_t)),
    "cuMemcpyDtoDAsync": ((), (_ADDRESS, _ADDRESS, c_size_t, _STREAM)),
    "cuMemsetD8": ((), (_ADDRESS, c_ubyte, c_size_t)),
    "cuMemsetD32": ((), (_ADDRESS, c_uint, c_size_t)),
    "cuMemsetD8Async": ((), (_ADDRESS, c_ubyte, c_size_t, _STREAM)),
    "cuStreamCreate": ((_STREAM,), (c_uint,)),
    "cuStreamSynchronize": ((), (_STREAM,)),
    "cuStreamDestroy": ((), (_STREAM,)),
    "cuStreamBeginCapture": ((), (_STREAM, c_int)),
    "cuGraphInstantiate": ((_HANDLE,), (_HANDLE, c_uint64)),
    "cuGraphLaunch": ((), (_HANDLE, _STREAM)),
    "cuEventCreate": ((_HANDLE,), (c_uint,)),
    "cuEventRecord": ((), (_HANDLE, _STREAM)),
    "cuEventElapsedTime": ((c_float,), (_HANDLE, _HANDLE)),
    "cuEventDestroy": ((), (_HANDLE,)),
    "cuLaunchKernel": ((), (_HANDLE, *(c_uint,) * 7, _STREAM, c_void_p, c_void_p)),
    # the map, element type, rank, address, sizes, strides, box, strides of elements, interleave, swizzle, L2, fill
    "cuTensorMapEncodeTiled": ((), (c_void_p, c_int, c_uint, _ADDRESS, *(c_void_p,) * 4, *(c_int,) * 4)),
}  # fmt: skip
#: the symbols of functions that have a newer form
_SYMBOLS = {"cuGraphInstantiate": "cuGraphInstantiateWithFlags"} | {
    name: f"{name}_v2"
    for name in (
        "cuDeviceTotalMem", "cuDevicePrimaryCtxRelease", "cuMemAlloc", "cuMemFree", "cuMemcpyHtoD", "cuMemcpyDtoH",
        "cuMemcpyDtoDAsync", "cuMemsetD8", "cuMemsetD32", "cuStreamDestroy", "cuStreamBeginCapture", "cuEventDestroy",
    )
}  # fmt: skip

#: CU_STREAM_NON_BLOCKING, and CU_STREAM_CAPTURE_MODE_GLOBAL
NON_BLOCKING, CAPTURE_GLOBAL = 1, 0


class Driver:
    """The functions of the driver; each returns its status and its results.

    Handles and addresses are integers, and 0 is the null handle.
    """

    def __init__(self, library: Any = None) -> None:
        """``library``: the driver, for ctypes; None: libcuda.  Raises OSError without one."""
        self.library = library or ctypes.CDLL(LIBRARY)

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        """The function ``name``.  Raises AttributeError for one that the table or the driver lacks."""
        if name not in _FUNCTIONS:
            raise AttributeError(name)
        results, parameters = _FUNCTIONS[name]
        entry = _SYMBOLS.get(name, name), self.library
        function = ctypes.CFUNCTYPE(c_int, *map(POINTER, results), *parameters)(entry)

        def call(*arguments: Any) -> tuple[Any, ...]:
            made = [kind() for kind in results]
            status = function(*map(byref, made), *arguments)
            return status, *(x.value or 0 for x in made)

        setattr(self, name, call)
        return call

    def device_name(self, device: int) -> str:
        """The name of ``device``, such as NVIDIA H200."""
        room = ctypes.create_string_buffer(256)
        self.library.cuDeviceGetName(room, len(room), c_int(device))
        return room.value.decode()

    def end_capture(self, stream: int) -> tuple[int, int]:
        """The status, and the graph of what was enqueued in ``stream`` since cuStreamBeginCapture."""
        graph = c_void_p()
        status: int = self.library.cuStreamEndCapture(c_void_p(stream), byref(graph))
        return status, graph.value or 0

    def error_name(self, status: int) -> str:
        """The name of ``status`` in ``cuda.h``, such as CUDA_ERROR_INVALID_VALUE."""
        name = c_char_p()
        self.library.cuGetErrorName(c_int(status), byref(name))
        return (name.value or f"CUDA error {status}".encode()).decode()
