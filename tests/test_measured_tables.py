"""Tables in the docs are what the measurements say."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from PIL import Image

HERE = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE / "benchmarks"))


def benchmark(name):
    """A file of benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(name, HERE / "benchmarks" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_in_the_docs_is_made_from_the_results():
    table = benchmark("claims").table()
    assert table in (HERE / "docs" / "benchmarks" / "claims.md").read_text()
    # By hand: 0.1829525/0.1206223 and 0.0931142/0.0427745 s on the CPU, 0.0869760/0.0016296 s on the H200.
    assert "| training as one program (`fused`) | 10–100× | treasure hunt | 1.52× / 2.18× | 53× |" in table
    # 1.85077/1.72653 ms and 4.06903/6.50049 ms.
    assert "hypergrid, the step | 1.07× | 0.63× |" in table


def test_peers_on_a_cpu_are_shown_as_measured():
    rows = json.loads((HERE / "benchmarks" / "results" / "peers-cpu.json").read_text())["rows"]
    page = (HERE / "docs" / "benchmarks" / "claims.md").read_text()
    assert f"<!-- peers -->\n{benchmark('peers').markdown(rows)}<!-- end of peers -->" in page


def test_the_long_run_is_shown_as_it_was():
    long_run = benchmark("long_run")
    assert long_run.shown(long_run.PAGE.read_text()) == long_run.table(json.loads(long_run.RESULTS.read_text()))
    assert Image.open(long_run.PICTURE).text["Shows"] == long_run.digest()


def test_times_of_large_checkpoints_are_those_measured():
    page = (HERE / "docs" / "explanation" / "checkpoints.md").read_text()
    for row in json.loads((HERE / "benchmarks" / "results" / "large-checkpoints-cpu.json").read_text())["rows"]:
        writes = [row[name]["cpu_seconds"] for name in row if name[:5] in ("first", "secon", "third", "fourt")]
        first, second, third, fourth = (f"{seconds:.1f}" for seconds in writes)
        cells = [f"{first}, {second}", f"{third}, {fourth}", f"{row['read']['cpu_seconds']:.1f}"]
        assert f"| {row['megabytes']:,.0f} MB | {' | '.join(cells)} |" in page


def test_the_tables_of_defaults_are_made_from_the_results():
    """And the seeds that choose are not those that are reported."""
    defaults = benchmark("defaults")
    assert defaults.tables() in defaults.DOCS.read_text()
    for what, first in {"choose": 1000, "report": 2000}.items():
        assert all(row["seeds"][0] == first and row["seeds"][1] < first + 1000 for row in defaults.kept(what)[0])
