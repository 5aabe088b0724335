"""The pages of algorithms and worlds are what the registries and the results say, and leave none out."""

import importlib
import re
import sys
from pathlib import Path
from typing import get_args

import pytest

from xladder.families.gflownet.config import LossName
from xladder.families.value.config import MEMBERS
from xladder.registry import WORKLOADS
from xladder.worlds import names

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def benchmark(monkeypatch):
    """Import a file of benchmarks/ as a module, for one test."""
    monkeypatch.syspath_prepend(str(DOCS.parent / "benchmarks"))
    yield importlib.import_module
    for name in ("pages", "curve_pictures", "pictures"):
        sys.modules.pop(name, None)


def test_generated_regions_are_what_would_be_generated(benchmark):
    pages = benchmark("pages")
    for page in pages.PAGES:
        text = page.read_text()
        assert text.count("<!-- generated: ") == len(pages.REGION.findall(text)), f"a mark in {page.name} has no end"
        assert pages.filled(text) == text, f"python benchmarks/pages.py writes another {page.name}"


def test_settings_and_figures_come_from_code_and_results(benchmark):
    pages = benchmark("pages")
    assert "| `--learner.atoms` | 51 | 51 | Atoms of a categorical head. |" in pages.settings("c51")
    assert "| `--pqn.lambda_` | 0.9 | 0.65 | λ of Q(λ). |" in pages.settings("pqn")
    row = {"end": {"mean": -0.25, "ci95": 0.5, "per_seed": [-0.5, 0.0]}, "measure": "return", "random": -0.75}
    assert pages.score(row) == ["−0.25 ± 0.50", "−0.50", "−0.75"]


def test_every_algorithm_and_every_world_has_a_page():
    algorithms = (DOCS / "algorithms" / "index.md").read_text()
    for preset in (*MEMBERS, "pqn", "r2d2", "explore"):
        assert re.search(rf"\[.*\]\(.*\.md\).*`--preset {preset}`", algorithms), preset
    for loss in get_args(LossName):
        assert re.search(rf"\[.*\]\(.*\.md\).*`--loss {loss}`", algorithms), loss
    index = (DOCS / "worlds" / "index.md").read_text()
    for workload in WORKLOADS:
        assert f"| `{workload}` |" in index or workload in names.GYMNAX, workload
    listed = "".join((DOCS / "worlds" / f"{page}.md").read_text() for page in ("classic-control", "bsuite", "minatar"))
    for world in names.GYMNAX:
        assert f"| `{world}` |" in listed, world
