"""One direction: nothing downstream is imported upstream, families do not know each other, and heavy packages are
imported where they belong. Imports inside functions count; those for type checkers only do not.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import xladder

ROOT = Path(xladder.__file__).parent

# From upstream to downstream. A package, or a module that stands alone, imports from those before it and from itself.
ORDER = (
    # What knows nothing of learning.
    "errors",
    "keywords",
    "core",
    "foreign_names",
    "settings",
    "devices",
    "program_cache",
    "stopwatch",
    "temporary_folders",
    "fingerprints",
    "user_code",
    "parameters",
    # The science: pure functions and their twins.
    "replay",
    "losses",
    "nets",
    "worlds",
    "learners",
    # What families are made of, and families.
    "twins",
    "bridge",
    "parity",
    "hybrid",
    "policy",
    "pictures",
    "protocols",
    "families",
    "sorrel",
    # How they are executed.
    "distributed",
    "rungs",
    "registry",
    # What comes of it.
    "plans",
    "apis",
    "gym",
    "sorrel",
    "results",
    "bad_numbers",
    "trainer",
    "execution",
    "callbacks",
    "progress",
    "profiling",
    "debugging",
    "runs",
    "training",
    "sweeps",
    "report",
    # Who asks for it.
    "cli",
    "__main__",
)

ALLOWED = {
    # A result is what users hold in their hands: `save` and `policy` are short for functions of `runs`, called there.
    ("results", "runs.recording"),
    ("results", "runs.nets"),
}

SHARING = {
    # Types and names only.
    "learners.gflownet_torch",
    "nets.flow_torch",
    "replay.history_host",
    # Kinds of layers and names of optimisers, which belong to neither side.
    "twins.layers_torch",
    "twins.optimisers_torch",
    # Constants of the published rewards; the reward itself is computed twice.
    "worlds.hypergrid_host",
}
"""Twins that import something from their originals. There should be no others, and fewer."""

TORCH = (
    "*_torch.py",
    "torch_backend.py",
    "bridge.py",
    "parity.py",
    "parity/*.py",
    "rungs/torch.py",
    "rungs/compiled.py",
    "rungs/hybrid.py",
)
"""Files that may import PyTorch."""


class Import(NamedTuple):
    """One module imports another; both without `xladder.` in front where they are ours."""

    importer: str
    imported: str
    line: int


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports at any depth, but for those that only type checkers see."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for other in child.orelse:
                yield from statements(other)
        else:
            yield from statements(child)


@cache
def imports() -> tuple[Import, ...]:
    """Everything that is imported: our modules by their names here, others by theirs."""
    found = []
    for module, path in modules().items():
        for node in statements(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                assert not node.level and node.module, f"{path}:{node.lineno}: relative imports hide where they lead"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [Import(module, ours(name), node.lineno) for name in names]
    return tuple(found)


def ours(name: str) -> str:
    """`xladder.core.keys.root` is `core.keys`; what is not ours stays as it is."""
    if name.partition(".")[0] != "xladder":
        return name
    name = name.removeprefix("xladder").removeprefix(".")
    while name not in modules():
        name = name.rpartition(".")[0]
    return name


def of_the_house() -> list[Import]:
    return [i for i in imports() if i.importer and i.imported in modules() and i.imported]


def package(module: str) -> str:
    return module.partition(".")[0]


def format_imports(found: list[Import]) -> str:
    return "\n".join(f"{modules()[i.importer]}:{i.line} imports {i.imported}" for i in found)


def test_every_package_has_its_place_in_the_order():
    assert {package(module) for module in modules() if module} == set(ORDER), "add it to ORDER, or take it out"


def test_nothing_downstream_is_imported_upstream():
    place = {name: i for i, name in enumerate(ORDER)}
    wrong = [
        i
        for i in of_the_house()
        if place[package(i.imported)] > place[package(i.importer)] and (i.importer, i.imported) not in ALLOWED
    ]
    assert not wrong, format_imports(wrong)


def test_what_is_allowed_is_still_needed():
    assert {(i.importer, i.imported) for i in of_the_house()} >= ALLOWED


def test_families_do_not_import_each_other():
    def family(module: str) -> str:
        return ".".join(module.split(".")[:2])

    inside = [i for i in of_the_house() if package(i.importer) == package(i.imported) == "families"]
    wrong = [i for i in inside if family(i.imported) not in (family(i.importer), "families")]
    assert not wrong, format_imports(wrong)


def test_no_module_imports_itself_by_way_of_others():
    """A family's own file is where its parts are looked up: they may import what it is made of, and it imports them."""
    edges: dict[str, set[str]] = {}
    for i in of_the_house():
        if i.importer != i.imported and (i.importer, i.imported) not in ALLOWED:
            edges.setdefault(i.importer, set()).add(i.imported)

    finished: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join((*path[path.index(module) :], module))
        if module not in finished:
            for other in sorted(edges.get(module, ())):
                visit(other, (*path, module))
            finished.add(module)

    for module in modules():
        visit(module, ())


def test_twins_have_their_numbers_from_the_settings_and_not_from_their_originals():
    def original(module: str) -> str:
        return module.removesuffix("_torch").removesuffix("_host")

    twins = [i for i in of_the_house() if original(i.importer) != i.importer]
    wrong = [i for i in twins if i.imported == original(i.importer) and i.importer not in SHARING]
    assert not wrong, format_imports(wrong)


def test_pytorch_is_imported_only_by_its_twins_and_what_compares_them():
    wrong = [
        i
        for i in imports()
        if package(i.imported) == "torch" and not any(modules()[i.importer].match(pattern) for pattern in TORCH)
    ]
    assert not wrong, format_imports(wrong)


@pytest.mark.parametrize("module", ["xladder", "xladder.registry"])
def test_importing_loads_neither_jax_nor_torch(module):
    code = f"import sys, {module}; print({{'jax', 'torch', 'flax'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
