"""What is published: a wheel and a source archive with everything in them, which run where they are installed."""

import email
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import xladder
from tests import clean_venv

ROOT = Path(__file__).parent.parent
DATA = ("py.typed", "report/static/page.js", "report/static/page.css", "report/static/uPlot.iife.min.js")
LARGEST = 5 * 2**18  # bytes


def test_the_version_is_the_same_everywhere():
    assert f"version: {xladder.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {xladder.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"] == ["readme", "version"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source archive, and the wheel that is made from it alone."""
    folder = tmp_path_factory.mktemp("dist")
    run("-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    [archive], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return archive, wheel


def run(*words, cwd, **settings) -> str:
    done = subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_everything_is_inside_and_nothing_else(built):
    archive, wheel = built
    assert wheel.stat().st_size < LARGEST and archive.stat().st_size < LARGEST
    inside = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True)
    expected = {name.removeprefix("src/") for name in tracked.stdout.split()}
    assert {f"xladder/{name}" for name in DATA} <= expected <= inside
    info = f"xladder-{xladder.__version__}.dist-info"
    licences = {name for name in inside if name.startswith(f"{info}/licenses/")}
    assert {Path(name).name for name in licences} == {"LICENSE", "uPlot.LICENSE"}
    assert {name for name in inside - expected if not name.startswith(info)} == set()
    with tarfile.open(archive) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "hatch_build.py"} <= names
    assert "src/xladder/report/static/uPlot.LICENSE" in names


@pytest.mark.slow
def test_the_metadata_are_complete(built):
    [name] = [name for name in zipfile.ZipFile(built[1]).namelist() if name.endswith("METADATA")]
    metadata = email.message_from_bytes(zipfile.ZipFile(built[1]).read(name))
    assert metadata["Version"] == xladder.__version__ and metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0 AND MIT"
    assert metadata["Summary"] and metadata["Keywords"] and len(metadata.get_all("Classifier")) > 5
    assert {"torch", "gymnax", "docs", "dev"} <= set(metadata.get_all("Provides-Extra"))
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["Author"] == "The xladder authors"
    page = MarkdownIt().enable("table").render(metadata.get_payload())
    assert "<h1>xladder</h1>" in page and page.count("<table>") > 3
    assert set(re.findall(r"(?:href|src)=\"(.*?)\"", page)) == set()  # relative ones would lead nowhere
    assert "&lt;!--" not in page and "&lt;img" not in page and "](" not in page


@pytest.mark.slow
def test_an_installed_wheel_trains_and_reports(built, tmp_path):
    site = tmp_path / "site"
    run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, built[1], cwd=tmp_path)
    settings = {
        "env": {"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    }
    assert run(site / "bin/xladder", "--version", cwd=tmp_path, **settings).split() == ["xladder", xladder.__version__]
    where = run("-c", "import xladder; print(xladder.__file__)", cwd=tmp_path, **settings)
    assert Path(where.strip()).is_relative_to(site)
    train = "train hypergrid --world.side 4 --learner.width 4 --learner.batch-size 4 --iterations 6 --out run"
    run("-m", "xladder", *train.split(), cwd=tmp_path, **settings)
    versions = json.loads((tmp_path / "run/environment.json").read_text())["versions"]
    assert versions["xladder"] == xladder.__version__
    run("-m", "xladder", "report", "run", "--out", "report.html", cwd=tmp_path, **settings)
    assert "uPlot" in (tmp_path / "report.html").read_text()


PYTHON = """
import xladder
result = xladder.train("hypergrid", "fused", world={"side": 4}, learner={"width": 4, "batch_size": 4}, iterations=6)
print(result.metrics["loss"].shape)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1], ids=["sdist", "wheel"])
def test_with_the_dependencies_that_it_names_it_runs_outside_the_checkout(number, built, tmp_path):
    """pip builds the source archive in isolation, with nothing but what `build-system` requires."""
    python = clean_venv.make(tmp_path)
    clean_venv.run(python, "-m", "pip", "install", "--quiet", built[number], cwd=tmp_path)
    clean_venv.run(python, "-m", "pip", "check", cwd=tmp_path)
    xladder_, folder = python.parent / "xladder", tmp_path / "folder"
    folder.mkdir()
    assert clean_venv.run(xladder_, "--version", cwd=folder).split() == ["xladder", xladder.__version__]
    assert "hypergrid" in clean_venv.run(xladder_, "worlds", cwd=folder)
    train = "train hypergrid --world.side 4 --learner.width 4 --learner.batch-size 4 --iterations 6 --out run"
    clean_venv.run(xladder_, *train.split(), cwd=folder)
    clean_venv.run(xladder_, "report", "run", "--out", "report.html", cwd=folder)
    assert "(1, 6)" in clean_venv.run(python, "-c", PYTHON, cwd=folder)
