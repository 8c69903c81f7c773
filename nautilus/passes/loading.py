"""Loading of passes and lowerings by name, on first use.

A *target* is the text ``"package.module:attribute"``.  :func:`bind` fills the options of a pass (a
frozen dataclass) or the further arguments of a function by name.  Explicit options come first, then
the fields of the :class:`~nautilus.passes.manager.Context`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final

from nautilus.core.errors import InternalError
from nautilus.core.passes import CertifyingPass, Pass
from nautilus.core.records import is_frozen

ALWAYS: Final = "always"  # the option of a pass that runs wherever it may, also where it is predicted not to pay


@cache
def load(target: str) -> Any:
    """The attribute that ``target`` names. Raises InternalError if it does not exist."""
    module, _, attribute = target.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InternalError(f"cannot load {target}: {error}") from error


@cache
def load_pass(name: str, target: str) -> type[Pass]:
    """The class that ``target`` names. Raises InternalError unless it is a pass called ``name``."""
    made: Any = load(target)
    if not isinstance(made, type) or not is_frozen(made):
        raise InternalError(f"{target} is not a frozen dataclass")
    if getattr(made, "name", None) != name:
        raise InternalError(f"{target} has the name {getattr(made, 'name', None)!r}, but its file says {name!r}")
    if not callable(getattr(made, "apply", None)):
        raise InternalError(f"{target} has no method 'apply'")
    if hasattr(made, "derive") and not issubclass(made, CertifyingPass):
        raise InternalError(f"{target} has a method 'derive', but is no CertifyingPass")
    return made


@cache
def _parameters(target: Any) -> tuple[tuple[str, bool], ...]:
    """The parameters of a function, or of the ``__init__`` of a class, and whether each must be given.

    ``inspect.signature`` takes a hundredth of a short compilation for all passes.
    """
    made: Any = target
    function = made.__init__ if isinstance(target, type) else inspect.unwrap(target)
    code, named = function.__code__, function.__kwdefaults__ or {}
    positional = code.co_varnames[: code.co_argcount]
    given = len(positional) - len(function.__defaults__ or ())
    only_named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    found = (*((name, at < given) for at, name in enumerate(positional)), *((n, n not in named) for n in only_named))
    return found[1:] if isinstance(target, type) else found  # without ``self``


def has_option(target: Any, name: str) -> bool:
    """Whether a pass has the option ``name``."""
    return any(name == known for known, _ in _parameters(target))


def bind(target: Any, context: object, options: Mapping[str, Any], skip: int = 0) -> dict[str, Any]:
    """Keyword arguments for ``target``, except for its first ``skip`` parameters.

    Raises InternalError for a required parameter without a value, or an option that ``target`` does not have.
    """
    parameters = _parameters(target)[skip:]
    if unknown := sorted(set(options) - {name for name, _ in parameters}):
        raise InternalError(f"{target!r} has no option {', '.join(unknown)}")
    found: dict[str, Any] = {}
    for name, required in parameters:
        if name in options:
            found[name] = options[name]
        elif getattr(context, name, None) is not None:
            found[name] = getattr(context, name)
        elif not required:
            continue
        elif hasattr(context, name):
            found[name] = None
        else:
            raise InternalError(f"{target!r} needs {name!r}, which the context does not have")
    return found
