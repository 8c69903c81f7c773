"""``dataclass`` as the standard library has it, with less work while a module is imported.

The decorator of the standard library writes and compiles the text of up to six methods of every class, which is a
quarter of the processor time of a short compilation.  This one has the same parameters, fields and results, and
``fields``, ``replace``, ``asdict`` and pattern matching work as usual, but

- equality, hash, representation and the refusal of assignments are closures over the names of the fields;
- classes with the same number of fields share the compiled text of ``__init__``, in which each class puts the names of
  its own fields; it writes slots by their descriptors, which is faster than ``object.__setattr__``;
- types of fields are not inspected: ``ClassVar``, ``InitVar`` and ``KW_ONLY`` are not supported, nor are ``order`` and
  ``unsafe_hash``.

A class that derives from such a class uses this decorator too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import MISSING, Field, FrozenInstanceError
from functools import cache
from operator import attrgetter
from types import CodeType, FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, eq=True, frozen=False, slots=False, kw_only=False):
        """The class with its fields and methods; see the module."""

        def made(cls: type) -> type:
            return _made(cls, eq, frozen, slots, kw_only)

        return made if cls is None else made(cls)


_FIELDS, _PARAMS = "__dataclass_fields__", "__dataclass_params__"  # where the standard library looks for them


def _made(cls: type, eq: bool, frozen: bool, slots: bool, kw_only: bool) -> type:
    own = _own_fields(cls, kw_only)
    by_name = _inherited(cls, frozen) | {f.name: f for f in own}
    fields = list(by_name.values())
    parameters, left = _parameters(fields), _left(fields)
    init = _init(cls, parameters, bool(left))
    added = {"__init__": init, **_methods(fields, eq, frozen, slots)}
    body = cls.__dict__
    added = {name: method for name, method in added.items() if name not in body or not _defines(body, name)}
    added |= {_FIELDS: by_name, _PARAMS: _params(eq, frozen, slots, kw_only), "__doc__": cls.__doc__ or cls.__name__}
    new = _with_slots(cls, own, added) if slots else _with_attributes(cls, own, added)
    _connect(new, parameters, left, init.__globals__)
    return new


def _methods(fields: list[Field[Any]], eq: bool, frozen: bool, slots: bool) -> dict[str, object]:
    """The methods that a class gets besides ``__init__``, where its body does not define them."""
    made: dict[str, object] = {
        "__match_args__": tuple([f.name for f in fields if f.init and not f.kw_only]),
        "__repr__": _repr([f.name for f in fields if f.repr]),
    }
    if eq:
        compared = tuple([f.name for f in fields if f.compare])
        made["__eq__"] = _eq(_values(compared))
        hashed = tuple([f.name for f in fields if (f.compare if f.hash is None else f.hash)]) if frozen else compared
        made["__hash__"] = _hash(_values(hashed)) if frozen else None
    if frozen:
        made["__setattr__"], made["__delattr__"] = _refuse_assignment, _refuse_deletion
        if slots:  # the default way of pickle assigns
            names = tuple([f.name for f in fields])
            made["__getstate__"], made["__setstate__"] = _state(_values(names)), _restore(names)
    return made


def is_frozen(cls: Any) -> bool:
    """Whether objects of the class refuse assignments, as those of a frozen dataclass do, of this module or not."""
    params = getattr(cls, _PARAMS, None)
    return bool(cls.__setattr__ is _refuse_assignment or getattr(params, "frozen", False))


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Probe:
    """A class of the standard library, whose field says what the type of each field is to that library."""

    field: int


_KIND = dataclasses.fields(_Probe)[0]._field_type  # type: ignore[attr-defined]


@cache
def _params(eq: bool, frozen: bool, slots: bool, kw_only: bool) -> object:
    """The options of a class, as the standard library describes them; which of them it keeps depends on its version."""
    made = copy(getattr(_Probe, _PARAMS))
    for name, value in {"eq": eq, "frozen": frozen, "slots": slots, "kw_only": kw_only}.items():
        if hasattr(made, name):
            setattr(made, name, value)
    return made


def _own_fields(cls: type, kw_only: bool) -> list[Field[Any]]:
    """The fields that the class itself declares, in their order.

    Raises TypeError for a ``field()`` without a type, and ValueError for a default that objects would share and change.
    """
    annotations, body = cls.__annotations__, cls.__dict__
    for name, value in body.items():
        if type(value) is Field and name not in annotations:
            raise TypeError(f"{name!r} is a field but has no type annotation")
    found = []
    for name, kind in annotations.items():
        default = getattr(cls, name, MISSING)
        if isinstance(default, MemberDescriptorType):
            default = MISSING  # the slot of a base
        f: Any = default if isinstance(default, Field) else dataclasses.field(default=default)
        if f.default.__class__.__hash__ is None:
            raise ValueError(f"mutable default of field {name}: use default_factory")
        f.name, f.type, f._field_type = name, kind, _KIND
        f.kw_only = kw_only if f.kw_only is MISSING else f.kw_only
        found.append(f)
    return found


def _inherited(cls: type, frozen: bool) -> dict[str, Field[Any]]:
    """The fields of the bases.  Raises TypeError where only one of a class and its base is frozen."""
    found: dict[str, Field[Any]] = {}
    for base in cls.__mro__[-2:0:-1]:
        if _FIELDS in base.__dict__:
            found |= base.__dict__[_FIELDS]
            if is_frozen(base) != frozen:
                raise TypeError(f"{cls.__name__} and {base.__name__} must both be frozen or both not")
    return found


def _defines(body: Mapping[str, object], name: str) -> bool:
    """Whether the class body, which has ``name``, defines it: ``__hash__`` not as what follows from ``__eq__``."""
    return not (name == "__hash__" and body[name] is None and "__eq__" in body)


def _with_attributes(cls: type, own: Iterable[Field[Any]], added: Mapping[str, object]) -> type:
    """The class with attributes; that of a field is its default, not the object that describes the field."""
    for f in own:
        if isinstance(cls.__dict__.get(f.name), Field):
            if f.default is MISSING:
                delattr(cls, f.name)
            else:
                setattr(cls, f.name, f.default)
    for name, value in added.items():
        setattr(cls, name, value)
    return cls


def _with_slots(cls: type, own: Iterable[Field[Any]], added: dict[str, object]) -> type:
    """The class again, with attributes and slots for its own fields: a class cannot be given slots later."""
    names = [f.name for f in own]
    body = {k: v for k, v in cls.__dict__.items() if k not in names and k not in ("__dict__", "__weakref__")}
    inherited = {name for base in cls.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
    slots = tuple(name for name in names if name not in inherited)
    new = type(cls)(cls.__name__, cls.__bases__, body | added | {"__slots__": slots})
    new.__qualname__ = cls.__qualname__
    return new


@cache  # what is compared, hashed and pickled has the same fields in most classes
def _values(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of the fields as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda _: ()
    one = attrgetter(names[0])
    return lambda x: (one(x),)


def _eq(values: Callable[[Any], tuple[Any, ...]]) -> object:
    def __eq__(self: Any, other: Any) -> Any:
        if self is other:  # fields that are the same object count as equal in a comparison of tuples too
            return True
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


def _restore(names: tuple[str, ...]) -> object:
    def __setstate__(self: Any, state: tuple[Any, ...]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __setstate__


def _init(cls: Any, parameters: list[Field[Any]], left: bool) -> FunctionType:
    """``__init__`` with the names of the fields; :func:`_connect` gives it what it calls.

    ``left``: there are fields that are no parameters.  Raises TypeError for a field without a default after one
    with a default.
    """
    names, defaults, positional = ["self"], list[Any](), 0
    for f in parameters:
        names.append(f.name)
        if f.kw_only:
            continue
        positional += 1
        if _has_default(f):
            defaults.append(f.default)
        elif defaults:
            raise TypeError(f"{cls.__name__}.{f.name} has no default and follows a field with one")
    code = _shared(len(parameters), left or hasattr(cls, "__post_init__")).replace(
        co_argcount=1 + positional,
        co_kwonlyargcount=len(parameters) - positional,
        co_varnames=tuple(names),
        co_qualname=f"{cls.__qualname__}.__init__",
    )
    made = FunctionType(code, {}, "__init__", tuple(defaults))
    if len(parameters) > positional:
        made.__kwdefaults__ = {f.name: f.default for f in parameters[positional:] if _has_default(f)}
    made.__module__ = cls.__module__
    return made


def _parameters(fields: list[Field[Any]]) -> list[Field[Any]]:
    """The fields that ``__init__`` takes, those given by name after the others."""
    named = [f for f in fields if f.init and f.kw_only]
    return [*(f for f in fields if f.init and not f.kw_only), *named] if named else [f for f in fields if f.init]


def _left(fields: list[Field[Any]]) -> list[Field[Any]]:
    """The fields that get their defaults and are no parameters."""
    return [f for f in fields if not f.init and _has_default(f)]


@cache
def _shared(parameters: int, rest: bool) -> CodeType:
    """``__init__`` for all classes with this number of parameters; ``rest``: there is more to do in the end."""
    names = [f"p{n}" for n in range(parameters)]
    lines = [*(f"set{n}(self, p{n})" for n in range(parameters)), *(["rest(self)"] if rest else [])]
    text = "\n".join([f"def __init__({', '.join(['self', *names])}):", *(f" {line}" for line in lines or ["pass"])])
    return next(c for c in compile(text, "<dataclass>", "exec").co_consts if isinstance(c, CodeType))


def _has_default(f: Field[Any]) -> bool:
    """Whether the parameter may be left out; MISSING then stands for what a factory makes."""
    return f.default is not MISSING or f.default_factory is not MISSING


def _connect(cls: Any, parameters: list[Field[Any]], left: list[Field[Any]], names: dict[str, Any]) -> None:
    """Define what ``__init__`` calls: what sets each field, and what it does in the end."""
    for n, f in enumerate(parameters):
        names[f"set{n}"] = _setter(cls, f)
    checks = hasattr(cls, "__post_init__")
    if not (left or checks):
        return
    others = [(_setter(cls, f), f.default) for f in left]

    def rest(self: Any) -> None:
        for assign, default in others:
            assign(self, default)
        if checks:
            self.__post_init__()

    names["rest"] = rest


def _setter(cls: Any, f: Field[Any]) -> Callable[[Any, Any], None]:
    """What gives an object the value of a field, also of a frozen one; MISSING: that of its factory."""
    name = f.name
    slot = cls.__dict__.get(name)
    if slot is None:
        slot = next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)
    if isinstance(slot, MemberDescriptorType):
        plain: Callable[[Any, Any], None] = slot.__set__
    else:

        def plain(self: Any, value: Any) -> None:
            object.__setattr__(self, name, value)

    if f.default_factory is MISSING:
        return plain
    make = f.default_factory

    def set_or_make(self: Any, value: Any) -> None:
        plain(self, make() if value is MISSING else value)

    return set_or_make
