"""How a missing extra is installed, in this installation."""

import ast
import json
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from xladder import registry
from xladder.cli import compare, doctor
from xladder.core import packages
from xladder.plans import plan
from xladder.runs import folders


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


def test_the_line_for_a_clone_has_the_versions_that_were_tested(tmp_path, monkeypatch):
    clone = tmp_path / "a clone"
    clone.mkdir()
    (clone / "constraints.txt").touch()
    installed_from(monkeypatch, {"url": f"file://{tmp_path}/a%20clone", "dir_info": {"editable": True}})
    monkeypatch.setenv("PATH", "")
    monkeypatch.chdir(clone)
    assert packages.install_line("gym").endswith(" -m pip install -c constraints.txt -e '.[gym]'")
    monkeypatch.chdir(tmp_path)
    assert packages.install_line("gym").endswith(" -m pip install -c 'a clone/constraints.txt' -e './a clone[gym]'")


@pytest.mark.parametrize(
    ("platform", "extra", "says"), [("linux", "torch", 1), ("linux", "ray", 0), ("darwin", "torch", 0)]
)
def test_a_missing_pytorch_is_said_to_be_large_where_it_is(platform, extra, says, monkeypatch):
    monkeypatch.setattr(packages.sys, "platform", platform)
    text = str(packages.missing_extra(extra, extra))
    assert packages.install_line(extra) in text
    assert text.count("pip install torch --index-url https://download.pytorch.org/whl/cpu") == says


def made(path: Path) -> Path:
    """A file that can be executed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


@pytest.mark.parametrize(
    ("beside", "on_path", "expected"),
    [
        (True, "own", "xladder"),
        (True, "link", "xladder"),
        (True, "other", ".venv/bin/xladder"),  # another installation's
        (True, "", ".venv/bin/xladder"),
        (False, "other", "xladder"),  # pip --user
        (False, "", ".venv/bin/python -m xladder"),
    ],
)
def test_commands_to_type_next_begin_with_what_works(beside, on_path, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv/bin/python"))
    own, other = tmp_path / ".venv/bin/xladder", tmp_path / "other/xladder"
    if beside:
        made(own)
    if on_path == "link":
        other.parent.mkdir()
        other.symlink_to(own)
    elif on_path == "other":
        made(other)
    monkeypatch.setenv("PATH", {"own": str(own.parent), "": ""}.get(on_path, str(other.parent)))
    assert packages.program() == expected
    assert folders.command("eval", Path("runs/x")) == f"{expected} eval runs/x"


def test_a_path_with_spaces_is_quoted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "my env/bin/python"))
    assert packages.pip_line("triton") == "'my env/bin/python' -m pip install triton"
    made(tmp_path / "my env/bin/xladder")
    assert packages.program() == "'my env/bin/xladder'"


def test_no_line_that_installs_something_is_for_another_pip():
    """`pip_line` is the only code that writes one."""
    source = Path(packages.__file__).parents[1]
    bare = [file for file in source.rglob("*.py") if re.search(r"pip install [^.`*]", _strings(file))]
    assert not bare


def _strings(file: Path) -> str:
    """The strings of a module that are not docstrings."""
    tree = ast.parse(file.read_text())
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in texts]
    return "\n".join(node.value for node in found if isinstance(node.value, str))


def test_compare_leaves_out_rungs_whose_package_is_missing(monkeypatch):
    monkeypatch.setattr("xladder.runs.compare.is_installed", lambda package: package != "torch")
    workload, config = registry.find_workload("hypergrid"), plan("hypergrid").config
    assert compare.chosen_rungs(None, workload, config) == ["sequential", "parallel", "fused"]


def test_doctor_knows_every_extra_of_a_user():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    assert set(doctor.EXTRAS) == set(project["optional-dependencies"]) - {"dev", "docs"}
