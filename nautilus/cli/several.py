"""Several specs on one command line: each is compiled, and where its output goes.

A library, an object file, a header and a file of a framework may hold several specs.  They are joined from parts
(:func:`nautilus.export.built.joined`), so the cache has each spec by itself.  All but the functions of a spec is in a
namespace with its name: two specs may have tensors and sizes of the same names, but not the same name.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from nautilus.cli.compiling import Asked, entry_of, of_output, write_rule
from nautilus.cli.files import write_output
from nautilus.cli.options import STDIN
from nautilus.cli.output import report
from nautilus.core.errors import NautilusError
from nautilus.export.cache import Entry
from nautilus.export.forms import LIBRARIES, MANIFEST, SEVERAL, form_of

#: parameter of an option -> how it is written; it names a file of one spec, or the spec
_OF_ONE_SPEC = {"name": "--name", "report": "--report", "trace": "--trace", "dump_dir": "--dump-dir"}


def for_each(specs: Sequence[Path], run: Callable[[Path], None]) -> None:
    """``run`` of every spec; errors of one do not stop the others. Raises Exit with the code of the first failure."""
    if len(specs) == 1:
        run(specs[0])
        return
    code = 0
    for spec in specs:
        try:
            run(spec)
        except click.exceptions.Exit as done:
            code = code or done.exit_code
        except NautilusError as error:
            failed = report(error, sys.argv[1:])
            code = code or failed
    if code:
        raise click.exceptions.Exit(code)


def refuse_shared(specs: Sequence[Path], options: Mapping[str, Any]) -> None:
    """Raise UsageError where an option names one thing, and several specs would each write or be called it."""
    if len(specs) < 2:
        return
    for name, said in _OF_ONE_SPEC.items():
        if options.get(name):
            raise click.UsageError(f"{said} is for one spec, and {len(specs)} are given")


def outputs(specs: Sequence[Path], output: str | None, form: str | None) -> list[str]:
    """The file of each spec: ``-o``, a file in that folder, or one beside the spec.

    A folder whose name ends in ``/`` is made.  ``form`` (of ``--emit``) is the suffix of names that are made here.
    What comes from standard input goes to standard output.
    Raises UsageError where two outputs would be the same file, or where the input would be replaced.
    """
    suffix = {"manifest": MANIFEST, "torch": ".py", "tvm-ffi": ".so", "jax": ".py"}.get(form or "", f".{form or 'cu'}")
    found = [_output(spec, output, suffix) for spec in specs]
    if len(specs) > 1 and len(set(found)) < len(found):
        again = next(name for i, name in enumerate(found) if name in found[:i])
        raise click.UsageError(f"{len(specs)} specs would share the output {again}; -o names a folder, as in -o out/")
    return found


def _output(spec: Path, output: str | None, suffix: str) -> str:
    if output is None:
        if spec.stem == STDIN:
            return "-"
        if not spec.name:
            raise click.UsageError(f"{str(spec)!r} names no file")
        if (beside := spec.with_suffix(suffix)) == spec:
            raise click.UsageError(f"the output of {spec} would replace it; -o names another file")
        return str(beside)
    if output.endswith(os.sep):
        os.makedirs(output, exist_ok=True)
    if os.path.isdir(output):
        return str(Path(output) / f"{'stdin' if spec.stem == STDIN else spec.stem}{suffix}")
    return output


def joined_form(specs: Sequence[Path], output: str | None, emit: str | None) -> str | None:
    """The form of the one file with several specs that is asked for; None where each spec has a file of its own."""
    if len(specs) < 2 or output is None or output.endswith("/") or Path(output).is_dir():
        return None
    try:
        form = emit or form_of(output)
    except ValueError:
        return None
    return form if form in SEVERAL and output != "-" else None


def compile_joined(specs: Sequence[Path], output: str, form: str, use_cache: bool, **options: Any) -> None:
    """``nautilusc compile`` of several specs to one file.  Raises UsageError for specs of one name."""
    from nautilus.export.built import joined

    names = _names(specs, form)
    mine, options = of_output(options)
    asked = Asked(output, "o" if form in LIBRARIES else form, part=True, **mine)
    entries = list[Entry]()
    for_each(specs, lambda spec: entries.append(entry_of(spec, asked, options, use_cache)))
    for suffix, data in joined([entry.files for entry in entries], form, names, asked.host_compiler).items():
        write_output(str(Path(output).with_suffix(suffix)) if suffix else output, data)
    write_rule(specs, output, asked, options)
    if options["as_json"]:
        made = [{"spec": str(s), **e.about["summary"]} for s, e in zip(specs, entries, strict=True)]
        click.echo(json.dumps({"output": output, "form": form, "specs": made}))


def _names(specs: Sequence[Path], form: str) -> list[str]:
    """The functions of the specs.  Raises UsageError for two of one name."""
    from nautilus.export.built import names_in

    stems = [spec.stem for spec in specs]
    for kind in dict.fromkeys((form, "h")):
        known = dict[str, Path]()
        for name, spec in zip(names_in(kind, stems), specs, strict=True):
            if name in known:
                said = f"{known[name]} and {spec} would both define the function {name}; rename one of them"
                raise click.UsageError(said)
            known[name] = spec
    return names_in(form, stems)
