"""`xladder report`: one file that shows all of some runs and nothing else of the machine, in a real browser too."""

import base64
import json
import os
import re
import time
import zlib
from pathlib import Path

import numpy as np
import pytest

from tests import chromium, fresh_runs
from tests.conftest import TINY, TINY_CART, TINY_GRID
from xladder.cli.main import main
from xladder.pictures.curves import Panel
from xladder.pictures.scenes import make_maps, pack_film
from xladder.report import curves
from xladder.report.build import make_page, make_report, to_json
from xladder.report.source import Source, find_runs
from xladder.results import Snapshot
from xladder.runs.directory import Keeping, RunDirectory, writer_of
from xladder.runs.loading import load
from xladder.runs.plan_files import read_run_plan

SCORE = {"mean_return": 12.5, "ci95": 1.5, "per_agent": [6.0, 6.5], "episodes": 20, "seeds": 2}
SCORE |= {"random_return": 1.25, "random_ci95": 0.5}
LARGEST = 3_000_000


def write_run(folder: Path, workload="treasurehunt", config=TINY, seeds=2, ticks=30, finished=True) -> Path:
    """A run of agents that have not learned, with made-up metrics."""
    fresh_runs.make(folder, workload, config, seeds)
    return write_files(folder, ticks, finished)


def ends_of(columns) -> np.ndarray:
    """Of rows of one tick each."""
    return np.arange(1, next(iter(columns.values())).shape[1] + 1)


def write_files(folder: Path, ticks=30, finished=True) -> Path:
    plan = read_run_plan(folder)
    seeds = len(plan.seeds)
    rows = np.arange(seeds * ticks, dtype=float).reshape(seeds, ticks)
    columns = {"return": rows, "loss": 1 / (1 + rows), "epsilon": np.full(rows.shape, 0.5)}
    columns |= dict.fromkeys(("gem", "bone", "food", "length", "log_z"), rows % 7)
    columns |= {name: np.full(rows.shape, np.nan) for name in plan.workload.family.measured(plan.config)}
    for name in plan.workload.family.measured(plan.config):
        columns[name][:, 9::10] = 0.25
    writer_of(folder, plan).append(plan.seeds, ends_of(columns), columns, 3.0)
    (folder / "environment.json").write_text(json.dumps({"device": "cpu", "versions": {"jax": "1.2.3"}}))
    (folder / "log.txt").write_text("first line\nlast line\n")
    if finished:
        (folder / "timings.json").write_text(json.dumps({"compile_seconds": 1.5, "evaluation": SCORE}))
        (folder / "finished.json").write_text("{}")
    return folder


def plain_run(folder: Path, **options) -> Path:
    """The same without agents, which is quicker."""
    from xladder.plans import plan

    RunDirectory.create(folder, plan("treasurehunt", config=TINY, seeds=2)).lock.release()
    (folder / "lock").write_text("process 999999999 on nowhere since yesterday\n")
    return write_files(folder, **options)


def data_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def unpack(packed: dict) -> np.ndarray:
    raw = zlib.decompress(base64.b64decode(packed["data"]))
    return np.frombuffer(raw, packed["dtype"]).reshape(packed["shape"])


@pytest.fixture(scope="module")
def hunt(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("report") / "hunt")


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    folder = write_run(tmp_path_factory.mktemp("report") / "grid", "hypergrid", TINY_GRID, 1, 20)
    pictures = [Snapshot(tick, np.full((5, 5), 1 / 25, np.float32), "TV") for tick in (10, 20)]
    plan = read_run_plan(folder)
    RunDirectory(folder, plan, writer_of(folder, plan), None, Keeping(), True).save_snapshots(pictures)
    return folder


# Curves.


def test_a_long_line_is_reduced_to_few_points_that_keep_mean_and_extremes():
    values = np.zeros((1, 1_000_000))
    values[0, 123_456] = 1000.0
    line = curves.make_line(values, None, False, [7], each=4, most=500)
    assert len(line["x"]) == len(line["mean"]) == 500
    assert line["x"][-1] == 4_000_000
    assert max(line["high"]) == 1000.0 and min(line["low"]) == 0.0
    assert np.isclose(np.sum(line["mean"]), 1000 / 2000)


def test_the_moving_mean_is_weighted_by_episodes():
    values, weights = np.tile([1.0, 4.0], (1, 100)), np.tile([3.0, 1.0], (1, 100))
    line = curves.make_line(values, weights, True, [0], each=1, most=200)
    assert line["window"] == 4
    assert np.allclose(line["mean"][10:-10], 1.75)  # 2.5 without weights
    assert np.isclose(line["last"][0], 1.75)


def test_the_band_of_one_seed_is_the_range_that_the_mean_smooths():
    values = np.zeros((1, 200))
    values[0, 100] = 9.0
    line = curves.make_line(values, None, True, [0], each=1, most=500)  # a window of 4 ticks, one of them before
    assert np.flatnonzero(np.array(line["high"]) == 9.0).tolist() == [98, 99, 100, 101]
    assert np.flatnonzero(np.array(line["mean"]) > 0).tolist() == [98, 99, 100, 101]


def test_a_gap_is_not_a_number_and_nothing_measured_is_no_line():
    values = np.full((2, 40), np.nan)
    assert curves.make_line(values, None, True, [0, 1], 1, 100) == {}
    values[:, 19] = [1.0, np.inf]
    line = curves.make_line(values, None, False, [0, 1], 1, 100)
    assert line["x"] == [20] and line["mean"] == [1.0] and line["seeds"][1] == {"seed": 1, "y": [None]}


def test_the_band_is_an_interval_only_if_there_are_enough_seeds():
    values = np.arange(5.0)[:, None] * np.ones((5, 10))
    few, many = (curves.make_line(values[:n], None, False, range(n), 1, 100) for n in (3, 5))
    assert not few["interval"] and (few["low"][0], few["high"][0]) == (0.0, 2.0)
    assert many["interval"] and np.isclose(many["high"][0], 2 + 2.776445 * np.sqrt(2.5 / 5), atol=1e-3)


def test_points_per_line_shrink_with_the_number_of_lines():
    panels = [Panel(("return",), "return"), Panel(("gem", "food"), "items")]
    assert curves.points_per_line(panels, 1, 200_000) == curves.MOST_POINTS
    assert curves.points_per_line(panels, 10_000, 20_000) < 300


def long_run(folder: Path, rows: int) -> Path:
    plain_run(folder)
    header = "seed,epoch,steps,return,loss,epsilon,gem,bone,food,seconds\r\n"
    lines = (f"{i % 2},{i // 2},{i},{i % 997}.5,,0.25,{i % 7},1,2,{i}.125\r\n" for i in range(rows))
    (folder / "metrics.csv").write_text(header + "".join(lines))
    return folder


def test_a_long_run_makes_a_small_report(tmp_path):
    page = make_report([long_run(tmp_path / "run", 60_000)], replay=False)
    (run,) = data_of(page)["runs"]
    assert len(page) < 1_500_000 and run["done"] == 30_000
    assert all(len(line["x"]) <= 2000 for panel in run["panels"] for line in panel["lines"])
    assert [panel["title"] for panel in run["panels"]][-1] == "ε (random actions)"  # and no loss, which is empty


@pytest.mark.slow
def test_a_million_rows_take_a_few_seconds(tmp_path):
    folder = long_run(tmp_path / "run", 1_000_000)
    begun = time.process_time()
    page = make_report([folder], replay=False)
    assert time.process_time() - begun < 15 and len(page) < LARGEST


# What a page holds.


def test_a_report_shows_everything_of_a_run(hunt):
    page = make_report([hunt], replay=False)
    (run,) = data_of(page)["runs"]
    assert [panel["title"] for panel in run["panels"]][:2] == ["return per epoch", "items collected per epoch"]
    assert run["panels"][0]["lines"][0]["x"][-1] == 30
    assert [seed["seed"] for seed in run["panels"][0]["lines"][0]["seeds"]] == [0, 1]
    assert run["state"] == "finished" and run["done"] == 30 and run["total"] == TINY.epochs
    assert ["mean_return", 12.5] in run["score"] and any("12.5 ± 1.5" in line for line in run["score_lines"])
    assert run["references"] == {"random play": 1.25}
    assert ["compile_seconds", "1.5"] in run["timings"] and ["versions.jax", "1.2.3"] in run["environment"]
    assert ["config.world.height", "6"] in run["config"]
    assert run["log"][-1] == "last line"


def test_a_report_needs_nothing_from_elsewhere(hunt):
    page = make_report([hunt], replay=False)
    markup = re.sub(r"<script.*?</script>|<style>.*?</style>", "", page, flags=re.S)
    assert "http" not in markup.replace("http-equiv", "") and "default-src 'none'" in markup
    assert len(page) < 1_000_000
    assert "connect-src 'none'" in page and "unsafe" not in page.split("<style>")[0]


def test_settings_that_differ_are_named(tmp_path):
    a, b = plain_run(tmp_path / "a"), plain_run(tmp_path / "b")
    config = json.loads((b / "config.json").read_text())
    config["config"]["learner"]["lr"] = 0.5
    (b / "config.json").write_text(json.dumps(config))
    (section,) = data_of(make_report([a, b], replay=False))["sections"]
    assert section["differences"]["config"] == [["config.learner.lr", ["0.00025", "0.5"]]]


def test_runs_of_different_workloads_have_their_own_sections(hunt, grid):
    data = data_of(make_report([hunt, grid], replay=False))
    assert [(s["workload"], s["runs"]) for s in data["sections"]] == [("treasurehunt", [0]), ("hypergrid", [1])]


def test_a_run_that_is_being_written_is_shown_as_far_as_it_is(tmp_path):
    folder = plain_run(tmp_path / "run", finished=False)
    with (folder / "metrics.csv").open("a") as file:
        file.write("0,30,2")  # half a line
    (run,) = data_of(make_report([folder], replay=True))["runs"]
    assert run["done"] == 30 and run["state"] == "stopped"
    assert "no trained agents yet" in run["scenes_note"]
    import socket

    (folder / "lock").write_text(f"process {os.getpid()} on {socket.gethostname()} since now\n")
    assert Source(folder, "run").describe(1000)["state"] == "training"


def test_a_run_without_any_metrics_is_shown(tmp_path):
    folder = plain_run(tmp_path / "run")
    (folder / "metrics.csv").unlink()
    (run,) = data_of(make_report([folder], replay=False))["runs"]
    assert run["panels"] == [] and run["done"] == 0 and run["notes"] == []


def test_a_table_is_read_in_pieces(tmp_path, monkeypatch):
    folder = plain_run(tmp_path / "run")
    whole = Source(folder, "run").describe(1000)
    monkeypatch.setattr("xladder.report.source.PIECE", 400)
    assert Source(folder, "run").describe(1000) == whole and whole["done"] == 30


def test_only_new_lines_are_read_again_and_a_cut_file_from_the_beginning(tmp_path):
    folder = plain_run(tmp_path / "run")
    source = Source(folder, "run")
    whole = (folder / "metrics.csv").read_bytes()
    source.describe(1000)
    position = source._table._position
    with (folder / "metrics.csv").open("ab") as file:
        file.write(b"0,30,248,5,0.1,0.5,1,2,3,4,5,9.000\r\n1,30,248,5,0.1,0.5,1,2,3,4,5,9.000\r\n1,3")
    assert source.describe(1000)["done"] == 31 and source._table._position > position
    (folder / "metrics.csv").write_bytes(b"".join(whole.splitlines(True)[:4]))
    assert source.describe(1000)["panels"][0]["lines"][0]["x"] == [1, 2, 3]


# Damaged and hostile runs.


def test_a_damaged_run_is_named_and_the_others_are_shown(tmp_path):
    good, bad = plain_run(tmp_path / "good"), plain_run(tmp_path / "bad")
    (bad / "config.json").write_text("{")
    data = data_of(make_report([good, bad], replay=False))
    assert [run["name"] for run in data["runs"]] == ["good"]
    assert data["missing"] == [{"name": "bad", "why": "`config.json` is not valid JSON (JSONDecodeError)."}]


def test_damaged_metrics_and_agents_are_noted_in_the_run(tmp_path):
    folder = plain_run(tmp_path / "run")
    (folder / "metrics.csv").write_text("seed,epoch,steps,return,seconds\nzero,one\n")
    (folder / "checkpoints/agents.safetensors").write_bytes(b"nothing")
    (run,) = data_of(make_report([folder], replay=True))["runs"]
    assert "not a valid table" in run["notes"][0] and "not a safetensors file" in run["scenes_note"]


def test_a_world_of_the_users_own_is_shown_without_replay_unless_it_is_imported(tmp_path):
    folder = plain_run(tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"workload": "jax/not_imported_here:Maze"}))
    (run,) = data_of(make_report([folder], replay=True))["runs"]
    assert "--import not_imported_here" in run["notes"][0]
    assert run["workload"] == "jax/not_imported_here:Maze" and run["panels"][0]["title"] == "return"
    assert run["scenes"] == [] and run["scenes_note"]


HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror=window.hacked=1>"


def hostile_run(folder: Path) -> Path:
    run = plain_run(folder / HOSTILE.replace("/", "\u2044"))
    (run / "log.txt").write_text(HOSTILE + "\n")
    (run / "environment.json").write_text(json.dumps({HOSTILE: HOSTILE, "deep": {"deeper": [HOSTILE]}}))
    (run / "timings.json").write_text(json.dumps({"evaluation": {HOSTILE: HOSTILE, "mean_return": HOSTILE}}))
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"workload": HOSTILE, "rung": HOSTILE}))
    header, rest = (run / "metrics.csv").read_text().split("\n", 1)
    (run / "metrics.csv").write_text(header.replace("gem", "<b>gem</b>") + "\n" + rest)
    return run


def test_markup_in_a_run_stays_text(tmp_path):
    page = make_report([hostile_run(tmp_path)], replay=False)
    assert "<script>window" not in page and "<img" not in page.split("<style>")[0]
    (run,) = data_of(page)["runs"]
    assert run["log"] == [HOSTILE] and run["workload"] == HOSTILE


def test_json_for_a_page_has_no_angle_brackets():
    text = to_json({"<!--": "</script>&\u2028"})
    assert not set("<>&\u2028") & set(text) and json.loads(text) == {"<!--": "</script>&\u2028"}


@pytest.mark.parametrize("name", ["log.txt", "environment.json", "metrics.csv", "timings.json"])
def test_a_link_out_of_the_run_is_not_followed(tmp_path, name):
    (tmp_path / "secret").write_text('{"password": "hunter2"}\nhunter2,1\n')
    folder = plain_run(tmp_path / "run")
    (folder / name).unlink()
    (folder / name).symlink_to(tmp_path / "secret")
    page = make_report([folder], replay=False)
    assert "hunter2" not in page
    assert any(f"`{name}` is a link" in note for note in data_of(page)["runs"][0]["notes"])


def test_agents_behind_a_link_are_not_read(tmp_path, hunt):
    folder = plain_run(tmp_path / "run")
    (folder / "checkpoints").rmdir()
    (folder / "checkpoints").symlink_to(hunt / "checkpoints")
    (run,) = data_of(make_report([folder], replay=True))["runs"]
    assert run["scenes"] == [] and "lies behind one" in run["scenes_note"]


def test_pipes_and_huge_files_are_refused_at_once(tmp_path):
    folder = plain_run(tmp_path / "run")
    (folder / "environment.json").unlink()
    os.mkfifo(folder / "environment.json")
    for name in ("timings.json", "metrics.csv", "log.txt"):
        os.truncate(folder / name, 1 << 40)  # sparse
    (run,) = data_of(make_report([folder], replay=False))["runs"]
    told = " ".join(run["notes"])
    assert "`environment.json` is not a regular file" in told
    assert "`timings.json` has 1,099,511,627,776 bytes" in told and "`metrics.csv` has" in told
    assert sum(map(len, run["log"])) < 100_000


def test_numbers_without_end_are_left_out(tmp_path):
    folder = plain_run(tmp_path / "run")
    text = (folder / "metrics.csv").read_text().splitlines()
    cells = [line.split(",") for line in text[1:]]
    rows = [[*line[:3], "inf", "-inf", "nan", *line[6:-1], "inf" if line[1] == "29" else line[-1]] for line in cells]
    (folder / "metrics.csv").write_text("\n".join([text[0], *map(",".join, rows), ""]))
    (run,) = data_of(make_report([folder], replay=False))["runs"]
    assert [panel["title"] for panel in run["panels"]] == ["items collected per epoch"] and run["seconds"] == 3.0


def test_deep_and_odd_json_is_survived(tmp_path):
    folder = plain_run(tmp_path / "run")
    (folder / "environment.json").write_text("[" * 100_000 + "]" * 100_000)
    (folder / "timings.json").write_text('{"evaluation": {"mean_return": [1, [2, {"a": null}]], "x": 1e999}}')
    (run,) = data_of(make_report([folder], replay=False))["runs"]
    assert run["environment"] == [] and ["x", None] in run["score"]


# The command.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["empty"], "holds no runs"),
        (["nowhere"], "There is no folder"),
        (["run", "empty"], "holds no runs"),
        ([], "needs one run directory or more"),
        (["run", "--out", "empty"], "which is a folder"),
        (["run", "--out", "notes.txt"], "is not a report"),
        (["run", "--out", "notes.txt/report.html"], "cannot be written"),
        (["bad"], "None of these runs can be shown. bad:"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    plain_run(tmp_path / "run")
    (plain_run(tmp_path / "bad") / "config.json").write_text("[]")
    assert main(["report", *words, "--no-replay"]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists() and (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("out", ["notes.txt", "notes.txt/report.html"])
def test_where_it_goes_is_checked_before_anything_is_read(out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    plain_run(tmp_path / "run")
    monkeypatch.setattr("xladder.report.build.make_report", lambda *given: pytest.fail("this takes time"))
    assert main(["report", "run", "--out", out]) == 2


def test_names_with_markup_of_the_terminal_do_no_harm(tmp_path):
    plain_run(tmp_path / "[/bold] [red]run")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report.html")]) == 0


def test_a_folder_of_runs_stands_for_its_runs(tmp_path, capsys):
    for name in ("a", "deeper/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        plain_run(tmp_path / "runs" / name)
    (tmp_path / "runs/elsewhere").symlink_to(tmp_path / "runs/a")
    assert [path.name for path in find_runs([tmp_path / "runs"])] == ["a", "b"]
    out = tmp_path / "new/report.html"
    for _ in range(2):  # an earlier report is replaced
        assert main(["report", str(tmp_path / "runs"), "--no-replay", "--out", str(out)]) == 0
    assert "2 runs" in capsys.readouterr().out
    assert [run["name"] for run in data_of(out.read_text())["runs"]] == ["a", "b"]
    assert list(out.parent.iterdir()) == [out]


# Scenes.


def test_the_board_shows_what_the_agents_saw_expected_and_did(hunt):
    scenes = TINY.family.scenes(load(hunt))
    assert len(scenes) == 2
    for scene in scenes:
        cells, places, views = (unpack(scene[name]) for name in ("cells", "positions", "views"))
        values, actions, rewards = (unpack(scene[name]) for name in ("values", "actions", "rewards"))
        turns, agents = actions.shape
        assert (turns, agents) == (8, 2) and cells.shape == (8, 6, 6) and places.shape == (9, 2, 2)
        np.testing.assert_array_equal(values.argmax(-1), actions)  # greedy
        steps = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
        for t in range(turns):
            for agent in range(agents):
                step = places[t + 1, agent] - places[t, agent]
                assert (step == 0).all() or (step == steps[actions[t, agent]]).all()
                # The reward is that of the cell it moved towards, as it saw it.
                code = views[t, agent][tuple(1 + steps[actions[t, agent]])]
                assert rewards[t, agent] == {0: 0, 1: -1, 2: 10, 3: -10, 4: 5, 5: 0}[int(code)]
                assert views[t, agent][1, 1] == 5
                assert cells[t][tuple(places[t + 1, agent])] == 0
        assert (cells[:, 0] == 1).all() and (cells[:, :, -1] == 1).all()  # walls
        assert len(scene["sprites"]) == 1 + 3 + 1 + 2
        assert [scene["sprites"][actor["sprite"]] for actor in scene["actors"]] == scene["sprites"][-2:]


def test_a_film_of_few_colours_is_exact():
    frames = np.random.default_rng(0).integers(0, 3, (5, 4, 6, 3)).astype(np.uint8) * 100
    packed, palette = pack_film(frames)
    indices = np.bitwise_xor.accumulate(unpack(packed), axis=0)
    colours = np.frombuffer(bytes.fromhex(palette), np.uint8).reshape(-1, 3)
    np.testing.assert_array_equal(colours[indices], frames)


def test_a_film_of_many_colours_is_close():
    ramp = np.linspace(0, 255, 40).astype(np.uint8)
    frames = np.stack(np.broadcast_arrays(ramp[None, :, None], ramp[None, None, :], np.uint8(9)), axis=-1)
    packed, palette = pack_film(frames)
    colours = np.frombuffer(bytes.fromhex(palette), np.uint8).reshape(-1, 3).astype(int)
    assert len(colours) <= 256
    assert np.abs(colours[unpack(packed)] - frames).max() < 40


@pytest.mark.slow
def test_the_film_of_an_episode_has_the_greedy_actions(tmp_path):
    folder = write_run(tmp_path / "cart", "cartpole", TINY_CART, 1)
    (film,) = TINY_CART.family.scenes(load(folder))
    values, actions, rewards = (unpack(film[name]) for name in ("values", "actions", "rewards"))
    np.testing.assert_array_equal(values.argmax(-1), actions)
    assert film["action_names"] == ["left", "right"] and len(film["shown"]) == film["frames"]["shape"][0]
    assert film["shown"][-1] + 1 == len(rewards) and rewards[0] == 0 and (rewards[1:] == 1).all()


def test_the_maps_hold_target_and_learned_distribution(grid):
    (maps,) = TINY_GRID.family.scenes(load(grid))
    learned = unpack(maps["learned"]) * maps["unit"]
    assert maps["ticks"] == [10, 20] and maps["distances"] == [0.25, 0.25] and maps["distance"] == "over all 5^2 cells"
    np.testing.assert_allclose(learned, 1 / 25, atol=1e-5)
    assert np.isclose(unpack(maps["target"]).sum(), 1, atol=1e-5)


def test_large_maps_are_summed_over_blocks():
    maps = np.random.default_rng(0).random((2, 130, 70))
    small = make_maps(maps)
    assert max(small.shape[1:]) <= 64 and np.allclose(small.sum((1, 2)), maps.sum((1, 2)))


# In a browser.

needs_chromium = pytest.mark.skipif(not chromium.find(), reason="there is no Chromium here to open the page in")


@pytest.fixture(scope="module")
def browser():
    with chromium.Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory, hunt, grid):
    """A report of three runs, two of them side by side."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    other = write_run(path.parent / "other")
    cart = write_run(path.parent / "cart", "cartpole", TINY_CART, 1)
    path.write_text(make_report([hunt, other, grid, cart]))
    assert path.stat().st_size < LARGEST
    return path


def view(browser, path, width=1200, phone=False, dark=False):
    browser.errors.clear()
    browser.requests.clear()
    browser.resize(width, 900, phone)
    browser.darken(dark)
    browser.open(path)
    browser.wait(
        "document.querySelectorAll('.player[data-ready]').length === document.querySelectorAll('.player').length"
    )
    browser.wait("document.querySelectorAll('.chart canvas').length === document.querySelectorAll('.chart').length")


@needs_chromium
def test_the_page_works_in_a_browser(browser, report):
    view(browser, report)
    assert browser.errors == []
    assert [url for url in browser.requests if not url.startswith(("data:", "blob:"))] == [report.as_uri()]
    assert browser.run("document.querySelectorAll('.workload').length") == 3
    assert browser.run("document.querySelectorAll('.player .stage').length") == 4  # two of them side by side
    assert browser.run("document.querySelector('nav').textContent").startswith("These runs are of different workloads")
    assert browser.run("document.querySelector('.maps').parentNode.querySelector('.big').textContent") == "0.2500"


@needs_chromium
def test_the_worst_seed_is_beside_the_median_one_where_seeds_disagree(browser, tmp_path):
    folder = write_run(tmp_path / "grid", "hypergrid", TINY_GRID, 3, 20)
    plan = read_run_plan(folder)
    rows = {"tv": np.full((3, 20), np.nan)}
    rows["tv"][:, 19] = 0.1, 0.2, 0.7
    (folder / "metrics.csv").unlink()
    writer_of(folder, plan).append(plan.seeds, ends_of(rows), rows, 3.0)
    score = {"tv": 0.1, "texts": {"spearman": "a correlation"}, "conditions": [{"tv": 0.1}]}
    score |= {f"metric_{i}": 0.5 for i in range(60)}  # dags have as many
    (folder / "timings.json").write_text(json.dumps({"evaluation": score}))
    directory = RunDirectory(folder, plan, writer_of(folder, plan), None, Keeping(), True)
    directory.save_snapshots([Snapshot(20, np.full((5, 5), 1 / 25, np.float32), "TV", seed) for seed in range(3)])
    page = tmp_path / "page.html"
    page.write_text(make_report([folder]))
    view(browser, page)
    labels = "[...document.querySelectorAll('.stage h4 span')].map((one) => one.textContent).join('; ')"
    assert browser.run(labels) == "grid: sampler of seed 1, the median of 3; grid: sampler of seed 2, the worst of 3"
    rows = browser.run("[...document.querySelectorAll('.workload tbody th')].map((one) => one.textContent).join('; ')")
    assert "metric 59" in rows and "texts" not in rows and "conditions" not in rows


@needs_chromium
def test_the_keyboard_plays_steps_and_changes_the_speed(browser, report):
    view(browser, report)
    clock = "document.querySelector('.player .clock').textContent"
    browser.run("document.querySelector('.player').focus()")
    assert browser.run(clock) == "turn 1 of 8"
    for key, then in (("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", 8), ("Home", 1)):
        browser.press(key)
        assert browser.run(clock) == f"turn {then} of 8"
    browser.press("+", "NumpadAdd")
    assert browser.run("document.querySelector('.pace').textContent") == "2×"
    browser.press("-", "Minus")
    browser.press("-", "Minus")
    assert browser.run("document.querySelector('.pace').textContent") == "0.5×"
    browser.press("2", "Digit2")
    assert "agent 2" in browser.run("document.querySelector('.scene .words').textContent")
    browser.press(" ", "Space")
    browser.wait(f"{clock} !== 'turn 1 of 8'")
    browser.press(" ", "Space")
    stopped = browser.run(clock)
    browser.pause(0.8)
    assert browser.run(clock) == stopped
    assert browser.errors == []


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_is_readable_on_a_phone_and_in_the_dark(browser, report, dark):
    view(browser, report, 375, phone=True, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") == 375
    ink, paper = browser.run("[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]")
    assert contrast(ink, paper) > 7
    small = "[...document.querySelectorAll('p, td, th, button, span, figcaption')].filter(n => n.textContent && "
    assert browser.run(small + "parseFloat(getComputedStyle(n).fontSize) < 11).length") == 0
    assert browser.errors == []


@needs_chromium
def test_seeds_appear_where_a_chart_is_pointed_at(browser, report):
    view(browser, report)
    box = browser.run(
        "(r => [r.x + r.width / 2, r.y + r.height / 2])(document.querySelector('.u-over').getBoundingClientRect())"
    )
    browser.point(*box)
    browser.wait("!document.querySelector('.tip').hidden")
    told = browser.run("document.querySelector('.tip').textContent")
    assert "seed 0" in told and "seed 1" in told and "epochs" in told


@needs_chromium
def test_curves_can_be_hidden_and_drawn_over_time(browser, report):
    view(browser, report)
    numbers = "document.querySelectorAll('.chart')[0].querySelectorAll('.late span').length"
    assert browser.run(numbers) == 2
    browser.run("document.querySelector('.eye').click()")
    assert browser.run(numbers) == 1
    browser.run("document.querySelectorAll('.eye')[1].click()")
    assert browser.run(numbers) == 0
    browser.run("[...document.querySelectorAll('.eye')].slice(0, 2).forEach(button => button.click())")
    browser.run("[...document.querySelectorAll('.axis button')][1].click()")
    assert browser.run("document.querySelectorAll('.axis button')[1].getAttribute('aria-pressed')") == "true"
    assert browser.errors == []


@needs_chromium
def test_markup_in_a_run_does_nothing_in_a_browser(browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(make_report([hostile_run(tmp_path)], replay=True))
    view(browser, path)
    browser.pause(0.3)
    assert browser.run("window.hacked === undefined && !document.querySelector('img[src=x]')")
    assert browser.errors == [] and len(browser.requests) <= 2


@needs_chromium
def test_the_policy_of_the_page_stops_what_is_not_its_own(browser, tmp_path, hunt):
    page = make_page(data_of(make_report([hunt], replay=False)))
    path = tmp_path / "report.html"
    path.write_text(page.replace("</body>", "<script>window.hacked = 1</script></body>"))
    view(browser, path)
    assert browser.run("window.hacked === undefined")
    assert any("Content Security Policy" in error for error in browser.errors)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, as WCAG defines it."""

    def luminance(colour: str) -> float:
        parts = [int(x) / 255 for x in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_a_page_has_the_licence_of_the_code_in_it():
    page = make_page(None)
    assert "Copyright (c) 2022 Leon Sorokin" in page and "THE SOFTWARE IS PROVIDED" in page
