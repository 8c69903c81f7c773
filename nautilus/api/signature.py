"""The arguments of a call against the manifest of a kernel: types, shapes, strides, alignment, sizes and facts.

Sizes that are known at launch are read from the shapes, and strides from the arrays.  Every error is an InputError that
names the tensor or the fact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nautilus.api.arrays import View, row_major
from nautilus.core.errors import InputError
from nautilus.core.functions import FUNCTIONS
from nautilus.core.types import FORMATS, DType, Number, integer_limits

_OPS: Mapping[str, Callable[..., Any]] = {
    **{f.name: f.python for f in FUNCTIONS.values() if f.python is not None},
    "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0,  # as the launcher of C has it
    "select": lambda c, a, b: a if c else b,
    "i64": int, "i32": int, "f64": float, "f32": float, "bool": bool,
}  # fmt: skip


def _kinds(dtype: DType) -> frozenset[tuple[str, int]]:
    """The kinds and bits that arrays of ``dtype`` have; an unsigned integer of its width holds the bits."""
    f = FORMATS[dtype]
    torch = f.torch.removesuffix("fn")  # such as float8_e4m3fn, whose kind is e4m3
    of_float = "b" if torch.startswith("bfloat") else torch.partition("_")[2] or "f"
    kind = {"float": of_float, "int": "i", "uint": "u", "bool": "B"}[f.kind]
    bits = {("u", f.bits)} if dtype.stored_as_bits or dtype is DType.BOOL else set()
    return frozenset({(kind, f.bits)} | bits)


_TYPES: Mapping[str, frozenset[tuple[str, int]]] = {d.value: _kinds(d) for d in DType}


def value(e: Any, numbers: Mapping[Any, Number]) -> Any:
    """The value of an extent or of a condition of a manifest. Raises KeyError for a number that is not known.

    ``numbers``: of scalars by name, and what a device or a call adds, by pairs such as ``("address", name)``.
    """
    if isinstance(e, list):
        if e[0] in ("address", "co_resident"):
            return numbers[tuple(e)]
        return _OPS[e[0]](*(value(a, numbers) for a in e[1:]))
    return numbers[e] if isinstance(e, str) else e


def variant_of(
    manifest: Mapping[str, Any], numbers: Mapping[str, Number], address: Mapping[str, int],
    co_resident: Sequence[bool] = (),
) -> Mapping[str, Any]:  # fmt: skip
    """The variant that a launch runs. ``address``: of every tensor; ``co_resident``: those that the device runs."""
    known: dict[Any, Number] = {**numbers}
    known |= {("address", name): at for name, at in address.items()}
    known |= {("co_resident", n): resident for n, resident in enumerate(co_resident)}
    found = manifest["dispatch"]
    while not isinstance(found, int):
        found = found["then"] if value(found["if"], known) else found["else"]
    variant: Mapping[str, Any] = manifest["variants"][found]
    return variant


def numbers_of(
    manifest: Mapping[str, Any], views: Mapping[str, View], given: Mapping[str, Number]
) -> dict[str, Number]:
    """The value of every scalar: given, a default, or what the shapes and strides of ``views`` show.

    Raises InputError.
    """
    scalars = {s["name"]: s for s in manifest["scalars"]}
    if unknown := sorted(set(given) - set(scalars)):
        raise InputError(f"unknown scalar {unknown[0]!r}; scalars: {', '.join(scalars) or 'none'}")
    known: dict[str, Number] = dict(given)
    for t in manifest["tensors"]:
        if t["name"] in views:
            _read(t, views[t["name"]], known, {n: s["multiple"] or 1 for n, s in scalars.items()})
    for name, s in scalars.items():
        if name not in known and s["default"] is not None:
            known[name] = s["default"]
        if name not in known and not s["size"] and s["most"] is not None:
            continue  # a stride of an output
        if name not in known:
            raise InputError(f"scalar {name!r} has no value and no default")
        _limits(s, known[name])
    return known


def _read(t: Mapping[str, Any], v: View, known: dict[str, Number], multiples: Mapping[str, int]) -> None:
    if len(v.shape) != len(t["shape"]):
        raise InputError(f"{t['name']} has {len(v.shape)} axes instead of {len(t['shape'])}")
    pairs = [*zip(t["shape"], v.shape, strict=True)]
    for extent, size, step in zip(t["strides"], v.shape, v.strides, strict=True) if t["strided"] else ():
        if extent in t["shape"]:
            continue  # the axes after it have no gaps, which `check_tensor` compares
        multiple = multiples.get(extent, 1) if isinstance(extent, str) else 1
        pairs.append((extent, step if size > 1 else -(-max(step, 1) // multiple) * multiple))  # one row has no stride
    for extent, size in pairs:
        if isinstance(extent, str) and known.setdefault(extent, size) != size:
            raise InputError(f"{t['name']} has {extent} = {size}, but {extent} is {known[extent]}")


def _limits(s: Mapping[str, Any], n: Number) -> None:
    if s["most"] is not None and not max(0, s["least"] or 0) <= n <= s["most"]:
        raise InputError(f"{s['name']!r} is {n}; allowed are {max(0, s['least'] or 0)} to {s['most']}")
    if s["dtype"][0] not in "iu":
        return
    if int(n) != n:
        raise InputError(f"{s['name']!r} is {n}, which is no integer")
    least, most = integer_limits(DType(s["dtype"]))
    if not least <= n <= most:
        raise InputError(f"{s['name']!r} is {n}, which is no {s['dtype']}")


def check_tensor(t: Mapping[str, Any], v: View, numbers: Mapping[str, Number]) -> None:
    """Raises InputError where ``v`` is not what the tensor ``t`` of the manifest needs."""
    name, dtype = t["name"], t["dtype"]
    if dtype not in _TYPES:
        raise InputError(f"{name} has elements of type {dtype}, which the Python interface does not support yet")
    if (v.kind, v.bits) not in _TYPES[dtype]:
        raise InputError(f"{name} has elements of {v.bits} bits of another kind than {dtype}")
    shape = tuple(int(value(n, numbers)) for n in t["shape"])
    if v.shape != shape:
        raise InputError(f"{name} has shape {list(v.shape)} instead of {list(shape)}")
    strides = tuple(int(value(n, numbers)) for n in t["strides"]) if t["strided"] else row_major(shape)
    wrong = [n for n, size in enumerate(shape) if size > 1 and v.strides[n] != strides[n]]
    if wrong and 0 not in shape:
        hint = "" if t["strided"] else "; it must be contiguous, or the spec says strided"
        raise InputError(f"{name} has strides {list(v.strides)} instead of {list(strides)}{hint}")
    if v.address % t["alignment"]:
        raise InputError(f"the address of {name} is no multiple of {t['alignment']} bytes")


def check_facts(manifest: Mapping[str, Any], numbers: Mapping[str, Number]) -> None:
    """Raises InputError for a fact that does not hold."""
    for fact in manifest["facts"]:
        if not value(fact["condition"], numbers):
            where = ", ".join(f"{n} is {x}" for n, x in sorted(numbers.items()))
            raise InputError(f"'{fact['text']}' does not hold: {where}")
