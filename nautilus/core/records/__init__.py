"""``dataclass`` as the standard library has it, with less work while a module is imported.

The decorator of the standard library writes and compiles the text of up to six methods of every class, which is a
quarter of the processor time of a short compilation.  This one has the same parameters, fields and results, and
``fields``, ``replace``, ``asdict`` and pattern matching work as usual, but

- equality, hash, representation and the refusal of assignments are closures over the names of the fields;
- ``__init__`` is compiled when the first object of a class is made; it writes slots by their descriptors, which is
  faster than ``object.__setattr__``.

A class that derives from such a class uses this decorator too.  ``InitVar``, ``order`` and ``unsafe_hash`` are not
supported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, eq=True, frozen=False, slots=False, kw_only=False):
        """The class with its fields and methods; see the module."""

        def made(cls: type) -> type:
            return _made(cls, eq, frozen, slots, kw_only)

        return made if cls is None else made(cls)


def _made(cls: type, eq: bool, frozen: bool, slots: bool, kw_only: bool) -> type:
    own_hash = _has_hash(cls)
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # otherwise the standard library formats a signature
    new: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    fields = dataclasses.fields(new)
    _define(new, "__init__", _first_init(new))
    _define(new, "__repr__", _repr([f.name for f in fields if f.repr]))
    if eq:
        _define(new, "__eq__", _eq(_values([f for f in fields if f.compare])))
        hashed = [f for f in fields if (f.compare if f.hash is None else f.hash)]
        if not own_hash:
            new.__hash__ = _hash(_values(hashed)) if frozen else None
    if frozen:
        _define(new, "__setattr__", _refuse_assignment)
        _define(new, "__delattr__", _refuse_deletion)
        if slots:  # the default way of pickle assigns
            _define(new, "__getstate__", _state(_values(fields)))
            _define(new, "__setstate__", _restore([f.name for f in fields]))
    return new  # type: ignore[no-any-return]


def is_frozen(cls: Any) -> bool:
    """Whether objects of the class refuse assignments, as those of a frozen dataclass do, of this module or not."""
    params = getattr(cls, "__dataclass_params__", None)
    return bool(cls.__setattr__ is _refuse_assignment or getattr(params, "frozen", False))


def compiled_init(cls: Any) -> Any:
    """The ``__init__`` of a class with its parameters."""
    first = cls.__init__
    return first.compile() if hasattr(first, "compile") else first


def _has_hash(cls: type) -> bool:
    """Whether the class body defines ``__hash__``, not as what follows from ``__eq__``."""
    found = cls.__dict__.get("__hash__", MISSING)
    return not (found is MISSING or (found is None and "__eq__" in cls.__dict__))


def _define(cls: type, name: str, method: object) -> None:
    if name not in cls.__dict__:
        setattr(cls, name, method)


def _values(fields: Any) -> Callable[[Any], tuple[Any, ...]]:
    """The values of the fields as a tuple."""
    names = [f.name for f in fields]
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda _: ()
    one = attrgetter(names[0])
    return lambda x: (one(x),)


def _eq(values: Callable[[Any], tuple[Any, ...]]) -> object:
    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> object:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _repr(names: list[str]) -> object:
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"

    return __repr__


def _refuse_assignment(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(values: Callable[[Any], tuple[Any, ...]]) -> object:
    def __getstate__(self: Any) -> tuple[Any, ...]:
        return values(self)

    return __getstate__


def _restore(names: list[str]) -> object:
    def __setstate__(self: Any, state: tuple[Any, ...]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __setstate__


def _first_init(cls: Any) -> object:
    """An ``__init__`` that replaces itself by the compiled one."""

    def compile() -> Any:
        cls.__init__ = _init(cls)
        return cls.__init__

    def __init__(self: Any, *args: Any, **named: Any) -> None:
        compile()(self, *args, **named)

    __init__.compile = compile  # type: ignore[attr-defined]
    return __init__


def _init(cls: Any) -> object:
    """``__init__``, compiled.  Raises TypeError for a field without a default behind one with a default."""
    names: dict[str, Any] = {"MISSING": MISSING, "assign": object.__setattr__}
    parameters: list[str] = []
    by_name: list[str] = []
    body: list[str] = []
    for f in dataclasses.fields(cls):
        default = f.default is not MISSING or f.default_factory is not MISSING
        names |= {f"default_{f.name}": f.default, f"make_{f.name}": f.default_factory}
        if f.init:
            if not (default or f.kw_only) and parameters and "=" in parameters[-1]:
                raise TypeError(f"{cls.__name__}.{f.name} has no default and follows a field with one")
            (by_name if f.kw_only else parameters).append(f"{f.name}=default_{f.name}" if default else f.name)
        if value := _value(f):
            body.append(_assignment(cls, f, value, names))
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ["self", *parameters, *(["*", *by_name] if by_name else [])]
    lines = [f"def __init__({', '.join(parameters)}):", *(f" {line}" for line in body or ["pass"])]
    exec("\n".join(lines), names)
    made = names["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made


def _value(f: Field[Any]) -> str:
    """The expression that ``__init__`` gives the field; empty: it keeps the class attribute."""
    if f.default_factory is not MISSING:
        return f"make_{f.name}() if {f.name} is MISSING else {f.name}" if f.init else f"make_{f.name}()"
    if f.init:
        return f.name
    return "" if f.default is MISSING else f"default_{f.name}"


def _assignment(cls: Any, f: Field[Any], value: str, names: dict[str, Any]) -> str:
    if cls.__setattr__ is object.__setattr__:
        return f"self.{f.name} = {value}"
    slot = next((base.__dict__[f.name] for base in cls.__mro__ if f.name in base.__dict__), None)
    if isinstance(slot, MemberDescriptorType):
        names[f"set_{f.name}"] = slot.__set__
        return f"set_{f.name}(self, {value})"
    return f"assign(self, {f.name!r}, {value})"
