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
from typing import Any

from nautilus.core.errors import InternalError
from nautilus.core.passes import CertifyingPass, Pass
from nautilus.core.records import is_frozen


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
def _parameters(target: Any) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(target).parameters.values())


def bind(target: Any, context: object, options: Mapping[str, Any], skip: int = 0) -> dict[str, Any]:
    """Keyword arguments for ``target``, except for its first ``skip`` parameters.

    Raises InternalError for a required parameter without a value, or an option that ``target`` does not have.
    """
    parameters = _parameters(target)[skip:]
    names = {p.name for p in parameters}
    if unknown := sorted(set(options) - names):
        raise InternalError(f"{target!r} has no option {', '.join(unknown)}")
    found: dict[str, Any] = {}
    for p in parameters:
        if p.name in options:
            found[p.name] = options[p.name]
        elif getattr(context, p.name, None) is not None:
            found[p.name] = getattr(context, p.name)
        elif p.default is not inspect.Parameter.empty or p.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        elif hasattr(context, p.name):
            found[p.name] = None
        else:
            raise InternalError(f"{target!r} needs {p.name!r}, which the context does not have")
    return found
