"""Every picture of the documentation says what it is made from, and is not older than that."""

import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_BYTES = 80_000  # of a picture of curves


@pytest.fixture
def pictures(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("pictures")
    for name in ("pictures", "curve_pictures"):
        sys.modules.pop(name, None)


def test_every_picture_is_in_the_manifest_and_on_a_page(pictures):
    assert list(pictures.manifest()) == pictures.names()
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    used = {Path(name).name for page in pages for name in re.findall(r"images/[\w./-]+", page.read_text())}
    assert {Path(name).name for name in pictures.names()} == used


def test_every_picture_says_what_makes_it(pictures):
    for name, entry in pictures.manifest().items():
        assert entry["made"], name
        assert {"from", "settings", "commit"} & set(entry), name
        scripts = re.findall(r"benchmarks/\w+\.py", entry["made"])
        assert all((ROOT / file).is_file() for file in [*scripts, *entry.get("from", [])]), name


def test_no_picture_is_older_than_what_it_shows(pictures):
    faults = {name: found for name, entry in pictures.manifest().items() if (found := pictures.fault(name, entry))}
    assert not faults, "\n".join(f"{name}: {found}" for name, found in faults.items())


def test_pictures_of_curves_are_those_that_were_measured(pictures):
    import curve_pictures

    shown = {name for name in curve_pictures.PICTURES if curve_pictures.panels(name)}
    assert {file.stem for file in curve_pictures.FOLDER.iterdir()} == shown
    assert all(file.stat().st_size < MOST_BYTES for file in curve_pictures.FOLDER.iterdir())


def test_a_picture_is_older_once_its_results_settings_or_bytes_change(pictures, monkeypatch):
    entries = pictures.manifest()
    ladder, replay = entries["ladder.png"], entries["replay.gif"]
    assert pictures.fault("ladder.png", ladder | {"from": ladder["from"][1:]}).startswith("what it shows has changed")
    other = replay["settings"] | {"learner.batch_size": 1}
    assert pictures.fault("replay.gif", replay | {"settings": other}).startswith("the settings of its run have changed")
    fewer = {name: value for name, value in replay["settings"].items() if name != "learner.batch_size"}
    assert pictures.fault("replay.gif", replay | {"settings": fewer}) == ""  # a setting that was added since
    assert "not the picture that was noted" in pictures.fault("ladder.png", ladder | {"picture": ""})
