"""How a missing extra is installed, in this installation."""

import json
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from xladder import registry
from xladder.cli import compare, doctor
from xladder.core import packages
from xladder.plans import plan


def installed_from(monkeypatch, told):
    text = None if told is None else json.dumps(told)
    monkeypatch.setattr(packages.metadata, "distribution", lambda _: SimpleNamespace(read_text=lambda _: text))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (None, "'xladder[torch]'"),
        ({"url": "https://example.org/xladder.zip"}, "'xladder[torch]'"),
        ({"url": "file:///no/such/folder", "dir_info": {"editable": True}}, "'xladder[torch]'"),
        ({"url": "file://{here}/a%20clone", "dir_info": {"editable": True}}, "-e './a clone[torch]'"),
        ({"url": "file://{here}", "dir_info": {}}, "'.[torch]'"),
    ],
)
def test_the_line_is_that_of_this_installation(told, expected, tmp_path, monkeypatch):
    (tmp_path / "a clone").mkdir()
    monkeypatch.chdir(tmp_path)
    installed_from(monkeypatch, told and {**told, "url": told["url"].replace("{here}", str(tmp_path))})
    monkeypatch.setenv("PATH", "")
    assert packages.install_line("torch") == f"{sys.executable} -m pip install {expected}"


def test_compare_leaves_out_rungs_whose_package_is_missing(monkeypatch):
    monkeypatch.setattr(compare, "is_installed", lambda package: package != "torch")
    workload, config = registry.find_workload("hypergrid"), plan("hypergrid").config
    assert compare.chosen_rungs(None, workload, config) == ["sequential", "parallel", "fused"]


def test_doctor_knows_every_extra_of_a_user():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    assert set(doctor.EXTRAS) == set(project["optional-dependencies"]) - {"dev", "docs"}
