"""Checkpoints on disk: what was saved is what is read, and whatever happened to it in between is noticed."""

import hashlib
import json
import os
import random
import shutil

import numpy as np
import pytest

from xladder.errors import DamagedRun, UsageError
from xladder.runs import checkpoints
from xladder.runs.checkpoints import Checkpoint, Checkpoints, Damaged

DAMAGES = 50
RUN = {"workload": "any", "config": {"lr": 0.1}}


def arrays(step):
    """A state with every kind of leaf: also empty ones, numbers, and one that is cut into segments."""
    rng = np.random.default_rng(step)
    memory = np.zeros((1, 2, 600, 40), np.uint8)
    memory[:, :, : 10 * step] = rng.integers(0, 256, (1, 2, 10 * step, 40))
    return {
        "state.runs.agent.params.kernel": rng.normal(size=(1, 4, 3)).astype(np.float32),
        "state.counters.tick": np.array(step, np.int32),
        "state.flags": rng.random(7) < 0.5,
        "state.generator": rng.integers(0, 2**63, 6, dtype=np.uint64),
        "state.nothing": np.zeros((0, 3), np.float32),
        "state.runs.row": memory[0, :, step],
        "state.transposed": rng.normal(size=(4, 3)).T,
        "state.runs.memory.frames": memory,
    }


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    monkeypatch.setattr(checkpoints, "SEGMENT_BYTES", 10_000)


@pytest.fixture
def kept(tmp_path):
    return Checkpoints(tmp_path / "checkpoints", RUN)


def save(kept, step, score=float("nan")):
    return kept.save(Checkpoint(step, arrays(step), {"done": step}), score)


def same(found, step):
    expected = arrays(step)
    assert found.step == step and found.facts == {"done": step} and list(found.arrays) == list(expected)
    for name, array in expected.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[name], array)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two checkpoints, to be copied and damaged."""
    folder = tmp_path_factory.mktemp("two") / "checkpoints"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "SEGMENT_BYTES", 10_000)
        for step in (3, 4):
            save(Checkpoints(folder, RUN), step)
    return folder


def test_what_was_saved_is_what_is_read(kept):
    assert kept.latest(pytest.fail) is None and kept.newest() is None
    for step in (1, 2, 3):
        assert save(kept, step).name == f"tick-{step:09d}"
        same(kept.latest(pytest.fail), step)
    same(kept.load(2), 2)
    assert kept.newest() == "tick-000000003"


def test_a_state_of_large_arrays_alone_is_kept(kept):
    large = {"state.memory": np.arange(40_000, dtype=np.uint8).reshape(1, 1, 400, 100)}
    kept.save(Checkpoint(1, large, {}), float("nan"))
    np.testing.assert_array_equal(kept.latest(pytest.fail).arrays["state.memory"], large["state.memory"])


def test_equal_states_have_equal_digests(tmp_path):
    digests = []
    for name, step in (("a", 2), ("b", 2), ("c", 3)):
        other = Checkpoints(tmp_path / name, RUN)
        save(other, step)
        digests.append(other.read_digest(step))
    assert digests[0] == digests[1] != digests[2]


def test_the_last_few_and_the_best_stay(kept):
    for step, score in [(1, 0.5), (2, 7.0), (3, 1.0), (4, float("nan")), (5, 2.0)]:
        save(kept, step, score)
    assert kept.steps() == [2, 4, 5]
    for step in kept.steps():
        same(kept.load(step), step)


def test_pieces_that_did_not_change_are_not_written_again(kept, monkeypatch):
    for step in (1, 2, 3):
        save(kept, step)
    written = []
    write = checkpoints._write_arrays
    monkeypatch.setattr(checkpoints, "_write_arrays", lambda f, a: (written.append(f.name), write(f, a))[1])
    save(kept, 4)
    pieces = [name for name in written if name != "state"]
    total = len(checkpoints.segments(arrays(4)["state.runs.memory.frames"])[1])
    assert 0 < len(pieces) < total
    used = {
        p["turn"]
        for p in json.loads((kept.path(4) / "manifest.json").read_text())["leaves"]["state.runs.memory.frames"][
            "segments"
        ]
    }
    before = {
        p["turn"]
        for p in json.loads((kept.path(3) / "manifest.json").read_text())["leaves"]["state.runs.memory.frames"][
            "segments"
        ]
    }
    assert not used & before  # so one bad sector cannot take both
    same(kept.latest(pytest.fail), 4)


def damage(rng, folder):
    """Do something to the newest checkpoint, or to what it alone uses. Returns what, for the message."""
    newest = folder / "tick-000000004"
    turn = json.loads((newest / "manifest.json").read_text())["turn"]
    files = [f for f in sorted([*newest.rglob("*"), *(folder / f"segments-{turn}").rglob("*")]) if f.is_file()]
    big = [f for f in files if f.stat().st_size]
    kind = rng.choice(["flip", "flip", "flip", "truncate", "remove", "swap", "grow", "add", "link"])
    file = rng.choice(big)
    if kind == "flip":
        data = bytearray(file.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(data)
    elif kind == "truncate":
        os.truncate(file, rng.randrange(file.stat().st_size))
    elif kind == "remove":
        file.unlink()
    elif kind == "grow":
        file.write_bytes(file.read_bytes() + b"\0")
    elif kind == "add":
        (newest / "state" / "more").write_bytes(b"?")
    elif kind == "link":
        shutil.move(file, folder.parent / "moved")
        file.symlink_to(folder.parent / "moved")
    else:
        other = rng.choice([f for f in big if f.read_bytes() != file.read_bytes()])
        one, two = file.read_bytes(), other.read_bytes()
        file.write_bytes(two)
        other.write_bytes(one)
    return f"{kind} {file.relative_to(folder)}"


@pytest.mark.slow
def test_every_damage_is_noticed_and_the_one_before_is_used(two, tmp_path):
    rng = random.Random(0)
    for number in range(DAMAGES):
        folder = tmp_path / str(number) / "checkpoints"
        shutil.copytree(two, folder)
        what = damage(rng, folder)
        said = []
        found = Checkpoints(folder, RUN).latest(said.append)
        assert found is not None and found.step == 3, what
        same(found, 3)
        assert len(said) == 1 and "tick-000000004 is damaged" in said[0], what
        assert (folder / "tick-000000004.corrupt").is_dir()
        shutil.rmtree(tmp_path / str(number))


def test_if_all_are_damaged_it_says_so(two, tmp_path):
    folder = tmp_path / "checkpoints"
    shutil.copytree(two, folder)
    for step in (3, 4):
        (folder / f"tick-{step:09d}" / "manifest.json").write_text("{}")
    with pytest.raises(DamagedRun, match="nothing to resume from"):
        Checkpoints(folder, RUN).latest(lambda line: None)
    assert Checkpoints(folder, RUN).steps() == [3, 4]  # where nothing is better, nothing is set aside


def test_checkpoints_of_another_run_are_refused_and_left_alone(two):
    with pytest.raises(UsageError, match=r"a different config\.json"):
        Checkpoints(two, {"workload": "any", "config": {"lr": 0.2}}).latest(pytest.fail)
    same(Checkpoints(two, RUN).latest(pytest.fail), 4)


def test_settings_that_came_later_are_no_reason_to_refuse(two):
    later = {"workload": "any", "config": {"lr": 0.1, "new": 3}}
    same(Checkpoints(two, later).load(4), 4)


@pytest.mark.parametrize("error", [PermissionError(13, "denied"), MemoryError(), ImportError("orbax")])
def test_what_is_no_damage_is_not_taken_for_it(two, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(checkpoints, "_read_arrays", fail)
    with pytest.raises(type(error)):
        Checkpoints(two, RUN).latest(pytest.fail)
    assert Checkpoints(two, RUN).steps() == [3, 4]


def test_a_damaged_piece_is_not_used_again(two, tmp_path):
    folder = tmp_path / "checkpoints"
    shutil.copytree(two, folder)
    kept = Checkpoints(folder, RUN)
    turn = json.loads((kept.path(4) / "manifest.json").read_text())["turn"]
    file = next(f for f in sorted((folder / f"segments-{turn}").rglob("*")) if f.is_file() and f.stat().st_size)
    file.write_bytes(b"?" + file.read_bytes()[1:])
    assert kept.latest(lambda line: None).step == 3
    for step in (4, 5, 6):
        save(kept, step)
        same(kept.load(step), step)


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("error", [Crash, pytest.param(OSError(28, "No space left"), marks=pytest.mark.slow)])
def test_a_save_may_be_cut_short_anywhere(kept, monkeypatch, error):
    """Every point is tried, until a save passes them all."""
    save(kept, 1)
    save(kept, 2)
    for point in range(1000):
        left = point

        def reached(_):
            nonlocal left
            if left == 0:
                raise error
            left -= 1

        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "reached", reached)
            try:
                save(kept, 3)
            except (Crash, OSError):
                found = kept.latest(pytest.fail)
                same(found, found.step)
                assert found.step in (2, 3)
                if found.step == 3:  # it counted already: begin again without it
                    shutil.rmtree(kept.path(3))
                continue
            break
    else:
        pytest.fail("never came through")
    assert point >= 8, "draft, arrays, manifest, every file and folder, and the renames"
    same(kept.latest(pytest.fail), 3)
    assert not list(kept.folder.glob("draft-*"))


def test_a_huge_shape_in_the_manifest_allocates_nothing(two, tmp_path):
    folder = tmp_path / "checkpoints"
    shutil.copytree(two, folder)
    file = folder / "tick-000000004" / "manifest.json"
    manifest = json.loads(file.read_text())
    for leaf in manifest["leaves"].values():
        leaf["shape"] = [2**40 * (size > 0) for size in leaf["shape"]]
    text = json.dumps(manifest).encode()
    file.write_bytes(text)
    (file.parent / "manifest.sha256").write_text(hashlib.sha256(text).hexdigest())
    with pytest.raises(Damaged, match="more than this machine has"):
        Checkpoints(folder, RUN).load(4)


@pytest.mark.parametrize("name", ["run[1]", "back\\slash", "gs:", "a*b?", "{x} y", "ünï\n"])
def test_a_folder_may_have_any_name(name, tmp_path):
    kept = Checkpoints(tmp_path / name / "checkpoints", RUN)
    kept.folder.parent.mkdir()
    save(kept, 1)
    same(kept.latest(pytest.fail), 1)


@pytest.mark.parametrize("what", ["tick-000000004", "segments", "piece"])
def test_a_folder_behind_a_link_is_damage(what, two, tmp_path):
    folder = tmp_path / "checkpoints"
    shutil.copytree(two, folder)
    kept = Checkpoints(folder, RUN)
    turn = json.loads((kept.path(4) / "manifest.json").read_text())["turn"]
    pieces = folder / f"segments-{turn}"
    place = {"segments": pieces, "piece": min(pieces.iterdir())}.get(what, kept.path(4))
    elsewhere = tmp_path / "elsewhere"
    place.rename(elsewhere)
    place.symlink_to(elsewhere)
    there = sorted(elsewhere.rglob("*"))
    said = []
    same(kept.latest(said.append), 3)
    assert "is a link" in said[0]
    for step in (4, 5, 6):
        save(kept, step)
        same(kept.latest(pytest.fail), step)
    assert sorted(elsewhere.rglob("*")) == there


def test_a_checkpoint_counts_though_old_ones_stay(kept, monkeypatch):
    def fail(self):
        raise PermissionError(13, "denied")

    monkeypatch.setattr(Checkpoints, "_prune", fail)
    assert save(kept, 1) == kept.path(1)


def test_a_tick_that_is_saved_again_is_replaced(kept):
    save(kept, 1)
    save(kept, 2)
    kept.save(Checkpoint(2, arrays(3), {"done": 3}))
    assert kept.load(2).facts == {"done": 3} and kept.steps() == [1, 2]
    assert not list(kept.folder.glob("draft-*"))
