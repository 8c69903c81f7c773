"""The input of a compilation: a spec, or a dump of a later stage, and the schedule that comes with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from nautilus.core.index.simplify import forget
from nautilus.core.records.memo import Results, forget_compilation
from nautilus.core.schedule import check_schedule
from nautilus.passes.compilation import Request, Result
from nautilus.passes.dumps import read_dump, stage_of
from nautilus.passes.loading import bind, load
from nautilus.passes.manager import Pipeline, Step, forget_trials
from nautilus.passes.pipelines import SPEC, Stage

_SPECS = Results(64)  # by the options of their analysis: attempts and variants begin with the same ones


def forget_all() -> None:
    """Forget what only compilations of the same input share: specs, whose files may change, and results of steps."""
    _SPECS.found.clear()
    forget()
    forget_compilation()
    forget_trials()


def read_input(request: Request, result: Result, pipeline: Pipeline) -> tuple[Stage, str | None]:
    """Store the module of ``request`` and its context in ``result``; returns its stage and the last pass it has had.

    The context has the schedule of the request, else that of the dump, or that which the tuning database has for the
    Spec.
    """
    if request.schedule is not None:
        check_schedule(request.schedule)
    start, after = stage_of(request.path), None
    if start is SPEC:
        module = _read_spec(request, result, pipeline)
    else:
        module, result.context, after = read_dump(request.path, request.text, start, result.context, request.explicit)
        pipeline.show(Step(start, "parse", None, is_last=False), module, True, 0.0, result.context)
    if request.name:
        module = replace(module, name=request.name)
        if start is SPEC:
            result.context = replace(result.context, spec=module)
    result.modules[start.name] = module
    if request.lookup is not None and start is SPEC and request.schedule is None:
        found = request.lookup(module, result.context)
        if found is not None:
            result.context, result.tuned = replace(result.context, schedule=found), True
            check_schedule(found)
    return start, after


def _read_spec(request: Request, result: Result, pipeline: Pipeline) -> Any:
    function, started = load(SPEC.lower), time.perf_counter()
    source: Any = request.path if request.text is None else request.text
    options = {"name": str(request.path)} if request.path.stem.startswith("<") else {}  # no file: a name for messages
    spec = _spec(function, source, bind(function, result.context, options, skip=1))
    result.context = replace(result.context, spec=spec)
    pipeline.show(Step(SPEC, "check", None, is_last=True), spec, True, time.perf_counter() - started, result.context)
    return spec


def _spec(function: Callable[..., Any], source: Any, options: Mapping[str, Any]) -> Any:
    """The Spec of ``source`` by ``function``, which is the same object for the same ``options``."""
    key = (source, *((name, tuple(x.items()) if isinstance(x, dict) else x) for name, x in options.items()))
    spec = _SPECS.found.get(key)
    if spec is None:
        spec = function(source, **options)
        _SPECS.keep(key, spec)
    return spec
