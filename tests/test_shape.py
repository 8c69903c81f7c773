"""The shape of the code: import direction, size ratchet, start-up cost, operator names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tests.test_words import files

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "nautilus"
MAX_FILE, MAX_FUNCTION, MAX_FILES = 500, 60, 12
MAX_DRIVER = 150  # the page to read first

#: Every room imports only rooms before it, and ``nautilus/__init__.py``.
ORDER = (
    *("core", "targets", "frontend", "scalar", "planner", "vr_tile", "ma_tile", "cuda"),
    *("cost", "check/bound", "passes", "runtime", "driver", "check", "bench", "remarks", "tune", "report", "export"),
    *("evaluation", "editor", "cli", "api"),
)

#: Parts of rooms that are rooms for this rule, because rooms before the rest of theirs need them.
PARTS = {"check/bound": ("check/bound", "check/inputs", "check/compare")}

#: The levels in order: the ``lowering`` of each imports the level before it. The printer reads the last IR everywhere.
LEVELS = ("frontend", "scalar", "vr_tile", "ma_tile", "cuda")

#: The rooms that import less: what they import besides themselves.
ROOMS: dict[str, set[str]] = {
    "core": set(),
    "targets": {"core"},
    "frontend": {"core", "targets"},
    "scalar": {"core", "targets"},
    "vr_tile": {"core", "targets"},
    "ma_tile": {"core", "targets"},
    "cuda": {"core", "targets", "ma_tile"},
    "planner": {"core", "targets", "scalar"},
    "check/bound": {"core", "targets", "frontend", "scalar", "planner"},
}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


#: A name that code loads by: a module of the package and one of its attributes, or the module alone.
_NAMED = re.compile(rf"nautilus\.(?:{'|'.join(x for x in ORDER if '/' not in x)})(?:\.\w+)*(?::\w+)?")


def nodes_of(text: str) -> tuple[ast.AST, ...]:
    """All nodes of a module, those of the same depth together."""
    return tuple(ast.walk(ast.parse(text)))


def imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The modules that are imported, and those that a string names, which another function may load."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAMED.fullmatch(node.value):
            yield node.value.partition(":")[0]
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "." * node.level + (node.module or "")
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module == "nautilus":
                yield from (f"nautilus.{a.name}" for a in node.names)


def room_of(path: str) -> tuple[str, str]:
    """The room of a module, and its place there; both with slashes."""
    for part, inside in PARTS.items():
        if any(path == p or path.startswith(f"{p}/") for p in inside):
            return part, path
    room, _, rest = path.partition("/")
    return room, rest


def allowed_rooms(name: str) -> set[str]:
    """The rooms that the file ``name`` (a path inside the package) may import; none outside of the rooms."""
    room, rest = room_of(name.removesuffix(".py"))
    if room == "__main__":
        return {"cli"}
    if room == "__init__":
        return {"api"}
    if room not in ORDER:
        return set()
    allowed = {room, "__version__"} | ROOMS.get(room, set(ORDER[: ORDER.index(room)]))
    if room in LEVELS[1:] and rest.partition("/")[0] == "lowering":
        allowed.add(LEVELS[LEVELS.index(room) - 1])
    return allowed


def wrong_imports(name: str, nodes: Iterable[ast.AST]) -> list[str]:
    """Imports of the file ``name`` that go against the rule; relative ones do, because they name no room."""
    allowed = allowed_rooms(name)
    bad = []
    for module in imports(nodes):
        first, _, rest = module.partition(".")
        if not first or (first == "nautilus" and rest and room_of(rest.replace(".", "/"))[0] not in allowed):
            bad.append(f"{name} imports {module}")
    return bad


#: What the validator imports besides itself: the definitions of the IRs, of expressions and of types, and no pass,
#: analysis, simplifier or interpreter.  Shared code is data: nodes and their fields, and the formats of types.
VALIDATOR = frozenset({
    "core.buffers", "core.certificate", "core.expr.nodes", "core.numerics", "core.records", "core.tiles", "core.types",
    "core.expr.infer",  # the types of results
    "core.text.expressions",  # the text of a message
    "scalar.ir", "vr_tile.ir", "ma_tile.ir.async_ops", "ma_tile.ir.ops", "ma_tile.ir.tile_scheduler",
})  # fmt: skip
#: Of :mod:`nautilus.core.numerics`, which has the meaning of functions for the interpreters.
ONLY_TYPES = frozenset({"Array"})


def shared_with_the_validator(name: str, text: str) -> list[str]:
    """Imports of a file of the validator that are no definitions."""
    if not name.startswith(("check/validate/", "check/certificates/rules")):
        return []
    bad = []
    for node in ast.walk(ast.parse(text)):
        modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            package = node.module in ("nautilus", "nautilus.check", "nautilus.check.validate")
            modules = [f"{node.module}.{a.name}" for a in node.names] if package else [node.module]
            if node.module == "nautilus.core.numerics":
                bad += [f"{name} imports {a.name} of {node.module}" for a in node.names if a.name not in ONLY_TYPES]
        for module in modules:
            own = module.startswith("nautilus.check.validate")
            if module.startswith("nautilus") and not own and module.removeprefix("nautilus.") not in VALIDATOR:
                bad.append(f"{name} imports {module}")
    return bad


def too_large(name: str, lines: int, nodes: Iterable[ast.AST]) -> list[str]:
    """Files and functions of ``name``, a file of this many ``lines``, beyond the limits."""
    found = []
    if lines > MAX_FILE:
        found.append(f"{name} has {lines} lines")
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION:
                found.append(f"{name}:{node.name} has {length} lines")
    return found


def crowded(paths: Iterable[Path]) -> list[str]:
    """Folders with more files of Python than the limit, ``__init__.py`` not counted."""
    counts = Counter(p.parent for p in paths if p.name != "__init__.py")
    return [f"{folder} has {n} files" for folder, n in sorted(counts.items()) if n > MAX_FILES]


@dataclass
class Offences:
    """What files of the package do against the rules."""

    imports: list[str] = field(default_factory=list)
    sizes: list[str] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)


@cache
def offences() -> Offences:
    """One traversal of all files, whose trees are large."""
    found = Offences()
    for path in sources():
        name, text = name_of(path), path.read_text()
        nodes = nodes_of(text)
        found.imports += wrong_imports(name, nodes)
        found.sizes += too_large(name, len(text.splitlines()), nodes)
        found.operators += operators(name, nodes)
    return found


def test_import_direction() -> None:
    assert offences().imports == []


def test_the_validator_shares_no_code_with_the_passes() -> None:
    assert [b for p in sources() for b in shared_with_the_validator(name_of(p), p.read_text())] == []
    for planted in (
        "from nautilus.scalar.rewriting import find_defs", "from nautilus.core.index.simplify import simplify",
        "import nautilus.scalar.analysis.value_range", "from nautilus.core.numerics import Array, eval_op",
        "from nautilus.core.functions import FUNCTIONS", "from nautilus.check import levels",
        "def f():\n    from nautilus.vr_tile.passes import cse",
    ):  # fmt: skip
        assert shared_with_the_validator("check/validate/x.py", planted), planted


def test_sizes() -> None:
    assert offences().sizes == []
    assert [str(p) for p in (ROOT / "tests").rglob("*.py") if len(p.read_text().splitlines()) > MAX_FILE] == []


def test_the_driver_is_a_page() -> None:
    assert len((PACKAGE / "driver.py").read_text().splitlines()) <= MAX_DRIVER


def test_files_per_folder() -> None:
    assert crowded([*sources(), *(ROOT / "tests").rglob("*.py")]) == []


def test_tests_mirror_the_package() -> None:
    """A folder of tests inside a room's folder of tests has the name of a folder of that room."""
    rooms = {p.name for p in PACKAGE.iterdir() if p.is_dir()}
    folders = {p.parent.relative_to(ROOT / "tests") for p in (ROOT / "tests").rglob("test_*.py")}
    assert [str(f) for f in folders if f.parts and f.parts[0] in rooms and not (PACKAGE / f).is_dir()] == []


_OPERATORS = re.compile(r"attention|softmax|matmul|flash|layer_?norm|rms_?norm", re.IGNORECASE)


def operators(name: str, nodes: Iterable[ast.AST]) -> list[str]:
    """Identifiers and strings of the file ``name`` that name an operator."""
    if name.startswith(("frontend/", "bench/peers/")):  # the libraries that bench calls have names
        return []
    words = [(node, text) for node in nodes if (text := _word(node)) and _OPERATORS.search(text)]
    docs = {id(d) for n in nodes if (d := _docstring(n)) is not None} if words else set[int]()
    return [f"{name}:{getattr(n, 'lineno', 0)}: {text[:60]!r}" for n, text in words if id(n) not in docs]


def test_no_operator_names_below_the_specs() -> None:
    """General rules, no special cases."""
    assert offences().operators == []


def _docstring(node: ast.AST) -> ast.AST | None:
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
        return body[0].value
    return None


def _word(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str() as text) | ast.Name(id=text):
            return text
        case ast.Attribute(value=ast.Name(id="np")):
            return ""  # numpy's own names
        case ast.Attribute(attr=text) | ast.FunctionDef(name=text) | ast.ClassDef(name=text):
            return text
    return ""


def wrong(name: str, text: str) -> list[str]:
    return wrong_imports(name, nodes_of(text))


def test_the_guards_fail_on_planted_offences() -> None:
    assert wrong("scalar/x.py", "from nautilus.vr_tile import ops")
    assert wrong("core/x.py", "import nautilus.frontend.spec")
    assert wrong("ma_tile/passes/mma/x.py", "from nautilus.vr_tile.ir import LoadOp")
    assert wrong("vr_tile/lowering/x.py", "from nautilus.frontend import spec")
    assert wrong("planner/x.py", "from nautilus import ma_tile")
    assert wrong("cost/model.py", "from nautilus.tune import space")
    assert wrong("driver.py", "from nautilus.check import report")
    assert wrong("core/x.py", "from ..tune import space")
    assert wrong("core/x.py", "def f():\n    from nautilus.tune import space")
    assert wrong("passes/x.py", "load('nautilus.check.report:Report')")
    assert wrong("check/bound/x.py", "from nautilus.driver import Request")
    assert wrong("check/inputs.py", "from nautilus.check import levels")
    assert not wrong("passes/x.py", "from nautilus.check.bound.stated import stated")
    assert wrong("core/x.py", "import_module('nautilus.tune.space')")
    assert not wrong("tune/explain.py", "from nautilus.driver import Request")
    assert not wrong("scalar/lowering.py", "from nautilus.frontend import spec")
    assert not wrong("vr_tile/lowering/lower.py", "from nautilus.scalar import ir")
    assert crowded([Path(f"core/{n}.py") for n in range(13)])
    assert not crowded([Path("core/__init__.py"), *(Path(f"core/{n}.py") for n in range(12))])
    assert too_large("core/x.py", 501, ())
    assert too_large("core/x.py", 61, nodes_of("def f():\n" + "    pass\n" * 60))
    assert operators("core/x.py", nodes_of("def f():\n    'Text.'\n    return 'softmax'"))
    assert not operators("core/x.py", nodes_of("def f():\n    'As in a softmax.'"))


LIGHT = [["--help"], ["--version"], ["compile", "--help"], ["--print-passes"]]


@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_start_up_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom nautilus.cli.main import main\n"
        f"assert main({arguments!r}) == 0\n"
        "heavy = {'numpy', 'lark', 'cuda', 'sympy', 'optuna', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_no_mention_of_a_machine_or_an_issue() -> None:
    pattern = re.compile(r"/work/|/root/|\bissue #?\d")
    names = [p for p in files() if p != Path(__file__)]
    assert [str(p) for p in names if pattern.search(p.read_text(encoding="utf-8"))] == []
