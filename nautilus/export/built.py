"""The files of outputs that are more than a text of the compiler: headers, libraries, manifests and their callers.

A file of several specs is joined from the parts of each (:func:`joined`), so that each is compiled, and kept in the
cache, by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nautilus.core.buffers import Space
from nautilus.cuda.host.workspace import ALIGNMENT
from nautilus.cuda.names import sanitize
from nautilus.driver import Result
from nautilus.export.forms import LIBRARIES, MANIFEST
from nautilus.export.frameworks.jax_module import headers as jax_headers
from nautilus.export.frameworks.jax_module import jax_function, jax_name, jax_prelude, jax_text
from nautilus.export.frameworks.torch_backward import gradients
from nautilus.export.frameworks.torch_module import BESIDE, torch_name, torch_operator, torch_prelude
from nautilus.export.frameworks.tvm_ffi import headers as tvm_headers
from nautilus.export.frameworks.tvm_ffi import tvm_ffi_text
from nautilus.export.header_file import contract, header_file
from nautilus.export.host_compiler import compile_library, link
from nautilus.export.library import Part, alignment, library_plan_bytes, library_text
from nautilus.export.manifest import manifest_text
from nautilus.runtime.nvrtc import Compiled

OBJECT = ".kernels.o"  # the suffix of the object file of a part

#: form -> the name of a spec's function, the beginning of a file with such functions, and the text of one
_PYTHON = {
    "torch": (torch_name, torch_prelude, torch_operator),
    "jax": (jax_name, jax_prelude, jax_function),
}


def built(
    made: Sequence[tuple[Result, Compiled | None]], form: str, host_compiler: str, part: bool = False
) -> dict[str, bytes]:
    """The files: the output under the name ``""``, and what is written beside it, by its suffix.

    ``part``: of one spec, for :func:`joined`; its machine code is an object file.

    Raises ToolchainError where a compiler is missing or fails.
    """
    result, cubin = made[0]
    parts = [Part(r.context.arch, r.choice, c.data if c is not None else b"") for r, c in made]
    tensors = [b for b in parts[0].module.buffers if b.space is not Space.TEMP]
    free = [b.name for b in tensors if alignment(parts, b) == b.dtype.bytes < ALIGNMENT]
    said = contract({r.context.arch: r.cuda_module for r, _ in made}, parts[0].module, free)
    if form == "h":
        choices = [p.choice for p in parts]
        size = max(library_plan_bytes(choices), *(c.plan_bytes for c in choices))
        return {"": header_file(said, parts[0].module, size).encode()}
    assert cubin is not None
    library, text = "o" if part else "so", "\n".join(said)
    if form in LIBRARIES:
        return {"": compile_library(library_text(parts, text), "o" if part else form, host_compiler)}
    if form == "tvm-ffi":
        found = tvm_headers()
        options = found.included if part else (*found.included, *found.linked)
        return {"": compile_library(tvm_ffi_text(parts, text), library, host_compiler, options)}
    if form in _PYTHON:
        name, _, function = _PYTHON[form]
        code = jax_text(parts, text) if form == "jax" else library_text(parts, text)
        options = jax_headers() if form == "jax" else ()
        defined = function(parts, said)
        lines = defined if part else _python_file(form, [name(parts[0].module.name)], [defined])
        made_of = compile_library(code, library, host_compiler, options)
        return {"": lines.encode(), OBJECT if part else BESIDE: made_of}
    about = manifest_text(result.choice, cubin.data).encode()
    return {"": cubin.data, MANIFEST: about} if form == "cubin" else {"": about}


def names_in(form: str, specs: Sequence[str]) -> list[str]:
    """The functions by which a file of ``form`` is called for specs of these names, one of each."""
    return [_PYTHON[form][0](name) if form in _PYTHON else sanitize(f"{name}_launch") for name in specs]


def joined(
    parts: Sequence[Mapping[str, bytes]], form: str, names: Sequence[str], host_compiler: str
) -> dict[str, bytes]:
    """The files of several specs from the :func:`built` parts of each; ``names``: :func:`names_in` of the specs.

    Raises ToolchainError where the linker refuses the parts, UnsupportedError where the names of a gradient misfit.
    """
    if form == "h":
        return {"": b"\n".join(p[""] for p in parts)}
    if form in _PYTHON:
        text = _python_file(form, names, [p[""].decode() for p in parts])
        return {"": text.encode(), BESIDE: link([p[OBJECT] for p in parts], "so", host_compiler)}
    options = tvm_headers().linked if form == "tvm-ffi" else ()
    return {"": link([p[""] for p in parts], "so" if form == "tvm-ffi" else form, host_compiler, options)}


def _python_file(form: str, names: Sequence[str], texts: Sequence[str]) -> str:
    """The file of the functions ``names``, which ``texts`` define."""
    ends = gradients(names, texts) if form == "torch" else ""
    return _PYTHON[form][1](names) + "\n\n".join(texts) + ends
