"""The commands in the value worlds, as a user types them, with good and with bad input."""

import csv
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from tests.test_cli import call
from xladder import registry
from xladder.cli import compare, rungs, worlds
from xladder.core.packages import install_line
from xladder.errors import XladderError
from xladder.families.value import atari_presets as atari
from xladder.families.value import presets as named
from xladder.families.value import summaries
from xladder.pictures import curves as pictures
from xladder.plans import plan
from xladder.registry import RUNGS, SOURCES, WORKLOADS, find_workload
from xladder.results import Result
from xladder.rungs.running import the_rest
from xladder.runs import measure
from xladder.runs.loading import load
from xladder.runs.plan_files import read_run_plan
from xladder.worlds import names

SMALL = [
    *("--world.num-envs", "4", "--learner.hidden", "16", "--learner.width", "16", "--learner.batch-size", "8"),
    *("--learner.memory", "200", "--learner.learning-starts", "32", "--learner.steps-per-update", "4"),
]
FEW = ["--evaluate-episodes", "2", "--eval-episodes", "3"]
# A game of 100 steps at most, and the published network, which takes a while to compile.
PONG = [
    *("--frames", "480", "--world.num-envs", "2", "--world.cap-frames", "400", "--learner.memory", "200"),
    *("--learner.learning-starts", "16", "--learner.batch-size", "4", "--evaluate-episodes", "0"),
]


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of 400 steps, and how its curves were asked for."""
    folder, asked = tmp_path_factory.mktemp("trained") / "run", []

    def draw(*given, original=pictures.draw_curves):
        asked.append(given)
        original(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "draw_curves", draw)
        assert call("train", "cartpole", "--steps", "400", *SMALL, *FEW, "--out", str(folder)) == 0
    return folder, asked


@pytest.mark.slow
def test_train_writes_the_whole_run_directory(trained):
    folder, _ = trained
    with Image.open(folder / "media/curves.png") as curves, Image.open(folder / "media/replay.gif") as replay:
        assert curves.width == 1600 and replay.n_frames > 1
    rows = list(csv.DictReader((folder / "metrics.csv").open()))
    assert [int(row["tick"]) for row in rows] == list(range(100))  # of one step of four copies each
    assert rows[0]["loss"] == "" and float(rows[-1]["loss"]) >= 0
    assert sum(bool(row["eval_return"]) for row in rows) == 10


@pytest.mark.slow
def test_curves_are_drawn_over_steps(trained):
    ((*_, unit, each),) = trained[1]
    assert (unit, each) == ("steps", 4)


def test_eval_reports_the_agreed_keys(trained, tmp_path, capsys):
    folder, _ = trained
    assert call("eval", str(folder), "--episodes", "3", "--json", str(tmp_path / "score.json")) == 0
    score = json.loads((tmp_path / "score.json").read_text())
    keys = {"mean_return", "ci95", "median_return", "episodes", "seeds", "epsilon", "random_return", "random_ci95"}
    assert keys <= set(score) and "human49" not in score
    assert score["episodes"] == 3 and 1 <= score["mean_return"] <= 500
    text = capsys.readouterr().out
    assert "random play" in text and "3 episodes" in text


@pytest.mark.slow
def test_a_rounded_length_is_said_once_and_recorded(tmp_path, capsys):
    run = tmp_path / "run"
    assert call("train", "cartpole", "--steps", "41", "--rung", "sequential", *SMALL, *FEW, "--out", str(run)) == 0
    said = capsys.readouterr()
    assert said.err == "41 steps are rounded up to 44: a tick is 1 step of 4 envs and 1 update, 4 steps.\n"
    assert "rounded up" not in said.out and json.loads((run / "config.json").read_text())["config"]["steps"] == 44
    assert call("train", "cartpole", "--config", str(run / "config.json"), "--out", str(tmp_path / "again")) == 0
    assert call("resume", str(run), "--steps", "45") == 0
    said = capsys.readouterr()
    assert said.err == "" and said.out.count("45 steps are rounded up to 48") == 1
    assert load(run).metrics["loss"].shape == (1, 12)


@pytest.mark.slow
def test_rainbow_trains_two_seeds_at_once(tmp_path, capsys):
    run = tmp_path / "run"
    words = ["--preset", "rainbow", "--rung", "fused", "--seeds", "2", "--steps", "200"]
    assert call("train", "cartpole", *words, *SMALL, *FEW, "--out", str(run)) == 0
    assert read_run_plan(run).config.learner.prioritised
    rows = list(csv.DictReader((run / "metrics.csv").open()))
    assert {(row["seed"], row["tick"]) for row in rows} == {(str(s), str(t)) for s in (0, 1) for t in range(50)}
    assert "95 % over seeds" in capsys.readouterr().out


@pytest.mark.slow
def test_compare_has_times_and_steps_per_second(tmp_path, capsys):
    files = ["--json", str(tmp_path / "c.json"), "--chart", str(tmp_path / "c.png")]
    assert call("compare", "cartpole", "--rungs", "torch,fused", "--steps", "800", *files, *SMALL) == 0
    rows = json.loads((tmp_path / "c.json").read_text())["rows"]
    assert [row["rung"] for row in rows] == ["torch", "fused"]
    for row in rows:
        assert row["learning"] and row["steps_per_second"] == pytest.approx(4 / row["seconds_per_tick"])
    assert (tmp_path / "c.png").stat().st_size > 0
    text = capsys.readouterr().out
    assert "cartpole, 800 steps on each rung" in text and "steps/s" in text


@pytest.mark.parametrize("flags", ["--preset pqn --rungs torch", "--rungs fused --seeds 0"])
def test_a_comparison_that_cannot_be_made_says_and_writes_nothing_else(flags, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call("compare", "cartpole", *flags.split()) == 2
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_parity_passes(tmp_path, capsys):
    assert call("parity", "cartpole", "--updates", "2", "--json", str(tmp_path / "p.json"), *SMALL) == 0
    levels = json.loads((tmp_path / "p.json").read_text())["levels"]
    assert levels[-1]["level"] == "2 updates" and all(level["passed"] for level in levels)


@pytest.fixture(scope="module")
def pong(tmp_path_factory):
    """A finished Atari run on `parallel`, scored in one game."""
    folder = tmp_path_factory.mktemp("pong") / "run"
    assert call("train", "atari/pong", "--rung", "parallel", *PONG, "--eval-episodes", "1", "--out", str(folder)) == 0
    return folder


@pytest.mark.slow
def test_atari_is_trained_and_shown(pong):
    with Image.open(pong / "media/replay.gif") as replay:
        assert replay.n_frames > 10
    assert len(list(csv.DictReader((pong / "metrics.csv").open()))) == 30  # of 2 steps of 2 envs, 4 frames each
    # Gradients are not clipped, and JSON has no infinity.
    assert json.loads((pong / "config.json").read_text())["config"]["learner"]["clip"] == "inf"
    assert read_run_plan(pong).config.learner.clip == float("inf")


@pytest.mark.slow
def test_an_atari_score_is_placed_beside_published_ones(pong, tmp_path, capsys):
    assert call("eval", str(pong), "--episodes", "2", "--json", str(tmp_path / "score.json")) == 0
    score = json.loads((tmp_path / "score.json").read_text())
    assert score["human49"] == pytest.approx((score["mean_return"] + 20.7) / 30)
    assert score["verdict"] == "nothing" and score["caveats"] == []
    text = capsys.readouterr().out
    assert "human-normalised" in text and "after 480 frames is published; the nearest is 20.4 ± 0.3" in text


@pytest.mark.slow
def test_a_run_that_was_stopped_is_placed_by_the_frames_it_has_done(pong, tmp_path, capsys):
    run = shutil.copytree(pong, tmp_path / "run")
    lines = (run / "metrics.csv").read_text().splitlines(keepends=True)
    (run / "metrics.csv").write_text("".join(lines[:11]))  # 10 of 30 ticks
    assert load(run).units_done == 160 and load(pong).units_done == 480
    assert call("eval", str(run), "--episodes", "1") == 0
    assert "after 160 frames is published" in capsys.readouterr().out


def test_of_several_seeds_the_one_that_came_least_far_counts():
    made = plan("cartpole", steps=80)
    metrics = {"return": np.full((2, 10), np.nan), "episodes": np.zeros((2, 10))}
    metrics["episodes"][1, 4:] = np.nan  # no game had ended, but ticks were done
    assert Result(made, metrics, {}, 0.0).units_done == 32


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--preset", "nature", "--protocol", "dopamine"], "are two different protocols"),
        (["--config", "CONFIG", "--protocol", "dopamine"], "leave out `--protocol`"),
    ],
)
def test_a_protocol_is_never_only_a_label(flags, said, pong, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = [str(pong / "config.json") if flag == "CONFIG" else flag for flag in flags]
    assert call("train", "atari/pong", *flags) == 2
    assert said in capsys.readouterr().err and list(tmp_path.iterdir()) == []
    assert plan("atari/pong", preset="nature", protocol="nature").config.protocol == "nature"


@pytest.mark.slow
@pytest.mark.parametrize("rung", ["sequential", "fused"])
def test_atari_is_trained_on_other_rungs(rung, tmp_path):
    run = tmp_path / "run"
    assert call("train", "atari/pong", "--rung", rung, *PONG, "--eval-episodes", "0", "--out", str(run)) == 0
    rows = list(csv.DictReader((run / "metrics.csv").open()))
    assert len(rows) == 30 and float(rows[-1]["loss"]) >= 0


def judged(preset, frames, score, game="pong", protocol=None, world=(), learner=(), **other):
    """What `judge` says under a preset with some changes."""
    config = named.presets(f"atari/{game}", protocol)[preset]
    world, learner = replace(config.world, **dict(world)), replace(config.learner, **dict(learner))
    return replace(config, world=world, learner=learner, frames=frames, **other).judge(score, frames)


M = 1_000_000


@pytest.mark.parametrize(
    ("preset", "frames", "score", "verdict", "said", "published"),
    [
        ("cleanrl", 40 * M, 20.4, "inside", "inside the published band at 40M frames", "training return"),
        ("dopamine", 10 * M, -20.0, "below", "below the published band at 10M frames", "training return"),
        ("dopamine", 5 * M, 0.0, "above", "above the published band at 5M frames", "training return"),
        ("nature", 200 * M, 18.0, "beside", "published is 18.9 (best evaluation", "best evaluation"),
    ],
)
def test_it_is_said_what_the_published_score_is(preset, frames, score, verdict, said, published):
    found = judged(preset, frames, score)
    assert found["verdict"] == verdict and said in found["placing"]
    caveat, *others = found["caveats"]
    assert [other[:26] for other in others] == ["The settings are those of "]
    assert f"The published score is the {published}" in caveat and "differ in method" in caveat
    # Random play scores −20.7, and humans 9.3 by one table and 14.6 by the other.
    assert found["human49"] == pytest.approx((score + 20.7) / 30.0)
    assert found["human57"] == pytest.approx((score + 20.7) / 35.3)


def test_another_number_of_frames_is_not_judged():
    found = judged("cleanrl", 10 * M, 20.4)
    assert found["verdict"] == "nothing" and "the nearest is 20.4 ± 0.3 after 40M frames" in found["placing"]
    assert [line[:26] for line in found["caveats"]] == ["The settings are those of "]


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"world": {"sticky": 0.1}}, "`world.sticky` 0.1"), ({"evaluate_epsilon": 0.2}, "`evaluate-epsilon` 0.2")],
)
def test_other_rules_are_not_judged(changes, named):
    found = judged("dopamine", 10 * M, 1.0, **changes)
    assert found["verdict"] == "nothing" and named in found["placing"]


def test_how_many_copies_play_is_no_rule():
    assert judged("dopamine", 10 * M, 1.0, world={"num_envs": 1, "threads": 3})["verdict"] == "inside"


def test_another_learner_than_the_published_one_is_named():
    found = judged("c51", 40 * M, 20.4, protocol="cleanrl")
    assert found["verdict"] == "inside"
    assert "`learner.head` categorical" in found["caveats"][1] and "more" in found["caveats"][1]
    assert "c51_atari_jax.py" in found["caveats"][2]


def test_games_without_published_scores_have_none():
    found = judged("cleanrl", 40 * M, 5.0, game="adventure")
    assert found["human49"] is None and found["human57"] is None
    assert found["verdict"] == "nothing" and "atari/adventure" in found["placing"]


def test_a_score_is_said_with_what_there_is():
    score = {"mean_return": 20.4, "ci95": float("nan"), "median_return": 20.4, "episodes": 1, "seeds": 1}
    score |= {"epsilon": 0.01, "random_return": -20.0, "random_ci95": 0.5}
    assert summaries.describe_score(score) == [
        "mean return 20.4, median 20.4, ε = 0.01, 1 episode",
        "random play −20.0 ± 0.5",
    ]
    lines = summaries.describe_score(score | judged("cleanrl", 40 * M, 20.4))
    assert (
        lines[2]
        == "human-normalised 1.37 by the table of 49 games, 1.16 by the table of 57 games (0 is random play, 1 a human)"
    )
    assert "inside" in lines[3] and "training return" in lines[4] and "FIRE" in lines[5] and len(lines) == 6


def lines_of(capsys):
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert max(map(len, lines)) <= 80
    return lines


def test_worlds_lists_everything_and_fits(capsys):
    assert call("worlds") == 0
    lines = lines_of(capsys)
    for name in [*WORKLOADS, *names.GYMNAX]:
        assert sum(line.split()[:1] == [name] for line in lines) == 1, name
    cartpole = next(line for line in lines if line.startswith("cartpole"))
    breakout = next(line for line in lines if line.startswith("minatar/breakout"))
    assert re.fullmatch(r"cartpole +4 numbers +2 +balance a pole.*", cartpole)
    assert re.fullmatch(r"minatar/breakout +10 × 10 × 4 +3 +break bricks.*", breakout)
    text = " ".join(lines)
    assert text.index("hypergrid") < text.index("acrobot") < text.index("atari/breakout") < text.index("gym/ID")
    assert text.count(": installed") == 5 and f"{len(names.ATARI_GAMES)} games" in text


def test_worlds_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(registry, "is_installed", lambda package: package != "ale_py")
    assert call("worlds") == 0
    text = capsys.readouterr().out
    assert "".join(install_line("atari").split()) in "".join(text.split()) and text.count(": installed") == 4


def test_worlds_of_atari_are_all_games_in_columns(capsys):
    assert call("worlds", "atari") == 0
    lines = lines_of(capsys)
    words = " ".join(lines).split()
    assert set(names.ATARI_GAMES) <= set(words) and len(lines) < 40
    assert "Left out: combat, joust, maze_craze and warlords; each needs two players" in " ".join(lines)
    assert "cartpole" not in words


def test_worlds_of_gymnax_come_with_what_is_left_out(capsys):
    assert call("worlds", "gymnax") == 0
    text = " ".join(lines_of(capsys))
    assert "Pendulum-v1" in text and "continuous actions" in text and "needs the network" in text


def test_worlds_as_json(capsys):
    assert call("worlds", "--json", "-") == 0
    said = capsys.readouterr()
    rows = {row["name"]: row for row in json.loads(said.out)["worlds"]}
    assert len(rows) == len(WORKLOADS) + len(names.GYMNAX) + len(names.ATARI_GAMES) + 5
    assert rows["cartpole"]["shape"] == [4] and rows["cartpole"]["actions"] == 2
    assert rows["atari/pong"]["extra"] == "atari" and rows["atari/pong"]["installed"]
    assert rows["treasurehunt"]["extra"] is None and "gymnax worlds" in said.err
    assert call("worlds", "gym", "--json", "-") == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["worlds"]] == ["gym/ID"]


def test_an_unknown_family_is_answered(capsys):
    assert call("worlds", "atri") == 2
    assert "Did you mean `atari`?" in capsys.readouterr().err


def test_listing_imports_nothing_heavy():
    code = (
        "import sys; from xladder.cli.main import main; main(['worlds']); main(['rungs']);"
        "print({'jax', 'torch', 'gymnax', 'ale_py', 'gymnasium'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_rungs_shows_the_families_and_why_not(capsys):
    assert call("rungs") == 0
    lines = lines_of(capsys)
    assert [*rungs.SOURCE_NAMES] == [*SOURCES]
    for name, family in zip(rungs.SOURCE_NAMES.values(), SOURCES.values(), strict=True):
        marks = next(line for line in lines if line.startswith(name)).split()[-len(RUNGS) :]
        assert marks == ["–" if rung in family.missing else "yes" for rung in RUNGS]
    text = " ".join(lines)
    assert "gym/ID cannot run on fused: the world has to be inside the compiled program" in text
    assert "`--preset pqn` cannot run on torch, compiled, hybrid or sequential" in text


BAD = {
    "cartpol": "Did you mean `cartpole`?",
    "treasurehnt": "Did you mean `treasurehunt`?",
    "hypergird": "Did you mean `hypergrid`?",
    "brekout": "Did you mean `atari/breakout`?",
    "zzz": "ising, sets, sequences, gymnax's worlds such as cartpole,",
    "atari/brekout": "Did you mean `breakout`? `xladder worlds atari` lists all",
    "atari/joust": "two players",
    "pendulum": "in JAX Brax or PureJaxRL. `xladder worlds` lists all.",
    "gym/NoSuch-v0": "Gymnasium has no world `NoSuch-v0`",
    "gym/": "`gym/` does not name a world",
    "gym/Pendulum-v1": "learned by other libraries: Stable-Baselines3 or CleanRL",
    "gym/CartPole-v1 --rung fused": "Use `parallel`",
    "cartpole --preset rainbw": "Did you mean `rainbow`",
    "atari/pong --protocol dopamin": "Did you mean `dopamine`",
    "atari/pong --preset pqn": "is left out on Atari",
    "cartpole --preset vdn": "The preset `vdn` sums the values of several agents",
    "cartpole --learner.torso nature": "use `--learner.torso mlp`",
    "minatar/breakout --learner.torso mlp": "use `--learner.torso minatar`",
    "cartpole --steps 0": "1 or more",
    "cartpole --preset pqn --rung torch": "Use `fused`",
    "cartpole --learner.memory 8": "it has to be 56 or more",
    "cartpole --rung mesh": "`mesh` needs `--mesh`",
    "cartpole --world.name acrobot": "use `acrobot` in its place",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_ends_with_a_sentence_and_writes_nothing(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call("train", *line.split()) == 2
    said = capsys.readouterr()
    assert BAD[line] in said.err and said.out == ""
    assert said.err.startswith("xladder: ") and len(said.err.splitlines()) == 1 and len(said.err) < 300
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "package", "extra"),
    [
        ("train cartpole", "gymnax", "gymnax"),
        ("train atari/pong", "ale_py", "atari"),
        ("train gym/CartPole-v1 --rung parallel", "gymnasium", "gym"),
        ("train cartpole --rung torch", "torch", "torch"),
        ("train cartpole --rung hybrid", "torch", "torch"),
        ("compare cartpole", "torch", "torch"),
    ],
)
def test_a_missing_extra_is_named(line, package, extra, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "is_installed", lambda name: name != package)
    assert call(*line.split()) == 2
    said = capsys.readouterr()
    assert install_line(extra) in said.err and said.out == ""
    assert list(tmp_path.iterdir()) == []


def rows_of(**changes):
    row = {"return_first": -21.0, "return_last": -20.0, "sampling_seconds": 0.5, "update_seconds": 0.7}
    row |= {
        "compile_seconds": 123.0,
        "peak_memory_mb": 81920.0,
        "seconds_per_tick": 0.9876,
        "steps_per_second": 12345.6,
    }
    return [row | {"rung": "torch", "speedup": 1.0}, row | {"rung": "sequential", "speedup": 123.4} | changes]


def printed(rows):
    console = Console(width=80, file=StringIO())
    found = {"rows": rows, "seeds": 1, "device": "cpu (a processor with a name of some length, 16 cores), JAX 0.10.2"}
    console.print(compare.table(found, find_workload("atari/pong")))
    return console.file.getvalue()


def test_the_table_of_a_comparison_fits():
    text = printed(rows_of(steps_per_second=98765432.1))
    assert "…" not in text and max(map(len, text.splitlines())) <= 80
    assert "12,346" in text and "98.77M" in text and text.count("−21 → −20") == 2


def test_a_comparison_of_several_seeds_has_their_interval():
    late = np.array([1.0, 2.0, 3.0, 6.0])
    row = measure.over_seeds("return_last", late) | {"rung": "fused"}
    assert row["return_last"] == 3.0 and row["return_last_per_seed"] == late.tolist()
    assert row["return_last_ci95"] == pytest.approx(3.182446 * late.std(ddof=1) / 2, rel=1e-5)
    cartpole = find_workload("cartpole")
    found = {"rows": [row, row | {"rung": "torch", "return_last_ci95": float("nan")}], "seeds": 4}
    line = "return, last tenth, 4 seeds, mean ± 95 %: fused 3.0 ± 3.4; torch –"
    assert compare.describe_seeds(found, cartpole) == [line]
    few = {"rows": [measure.over_seeds("return_last", np.array([-1.0, np.nan])) | {"rung": "fused"}], "seeds": 2}
    assert compare.describe_seeds(few, cartpole) == ["return, last tenth, 2 seeds, one by one: fused −1.0, –"]
    assert compare.describe_seeds(few | {"seeds": 1}, cartpole) == []


@pytest.mark.parametrize("ended_by", [SystemExit(130), XladderError("On the `fused` rung: no.")])
@pytest.mark.parametrize("to", ["c.json", "-"])
def test_an_interrupted_comparison_keeps_its_rows(ended_by, to, tmp_path, monkeypatch, capsys):
    def measure_apart(plan):
        if plan.rung == "fused":
            raise ended_by
        return rows_of()[0] | {"rung": plan.rung, "device": "cpu", "note": "", "learning": True}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("xladder.runs.compare.measure_apart", measure_apart)
    command = ["compare", "cartpole", "--rungs", "sequential,fused", "--json", to]
    assert call(*command) == (130 if isinstance(ended_by, SystemExit) else 1)
    found = json.loads(capsys.readouterr().out if to == "-" else (tmp_path / to).read_text())
    assert [row["rung"] for row in found["rows"]] == ["sequential"] and found["not_measured"] == ["fused"]
    assert found["rows"][0]["steps_per_second"] > 0


def test_an_update_that_could_not_be_told_from_sampling_is_no_number():
    """It is a tick less its sampling, which can take longer when it is timed by itself."""
    assert the_rest(0.3, 0.2) == pytest.approx(0.1) and np.isnan(the_rest(0.2, 0.3))
    assert measure.median([0.1, float("nan")]) is None and measure.median([0.1, 0.3]) == pytest.approx(0.2)
    text = printed(rows_of(update_seconds=None))
    assert "nan" not in text and re.search(r"sequential +987.60 +500.00 +– ", text)


def test_no_return_is_shown_where_no_episode_ended():
    for missing in ("return_first", "return_last"):
        text = printed(rows_of(**{missing: float("nan")}))
        assert "nan" not in text and text.count("−21 → −20") == 1 and re.search(r"– +81920 *$", text, re.MULTILINE)


def test_a_comparison_without_rungs_takes_those_that_can():
    gymnax, gym = find_workload("cartpole"), find_workload("gym/CartPole-v1")
    presets = named.presets("cartpole")
    everything = ["torch", "compiled", "hybrid", "sequential", "parallel", "fused"]
    assert compare.chosen_rungs(None, gymnax, presets["default"]) == everything
    assert compare.chosen_rungs(None, gym, presets["default"]) == everything[:-1]
    assert compare.chosen_rungs(None, gymnax, presets["pqn"]) == ["parallel", "fused"]


@pytest.fixture
def axes(tmp_path, monkeypatch):
    """`axes(unit, each)`: of a curve over 1000 ticks."""
    sheets = []

    def keep(height, make=pictures.new_figure):
        sheets.append(make(height))
        return sheets[-1]

    monkeypatch.setattr(pictures, "new_figure", keep)

    def draw(*units, ticks=1000):
        columns = {"return": np.arange(float(ticks))[None]}
        panels = [pictures.Panel(("return",), "return", wide=True)]
        pictures.draw_curves(tmp_path / "curves.png", columns, "a run", "epoch", panels, None, *units)
        return sheets[-1], sheets[-1].axes[0]

    return draw


def test_curves_count_in_units(axes):
    figure, shown = axes("frames", 1024)
    assert shown.get_xlabel() == "frames" and shown.get_xlim() == (1024, 1_024_000)
    faint, mean = shown.lines
    for line in (faint, mean):
        assert line.get_xdata()[[0, -1]].tolist() == [1024, 1_024_000]
    labels = [label.get_text() for label in shown.get_xticklabels()]
    assert "200k" in labels and "1M" in labels
    assert "moving mean over 20,480 frames" in figure.get_supxlabel()


def test_curves_of_other_workloads_count_ticks_as_before(axes):
    figure, shown = axes()
    assert shown.get_xlabel() == "epoch" and shown.get_xlim() == (1, 1000)
    assert "1,000" in [label.get_text() for label in shown.get_xticklabels()]
    assert "moving mean over 20 epochs" in figure.get_supxlabel()


def test_one_tick_is_one_mark(axes):
    _, shown = axes("steps", 8, ticks=1)
    assert [label.get_text() for label in shown.get_xticklabels()] == ["8"]


def test_shapes_are_said_in_words():
    assert worlds.format_shape((1,)) == "1 number"
    assert worlds.format_shape((4,)) == "4 numbers"
    assert worlds.format_shape((10, 10, 4)) == "10 × 10 × 4"
    assert atari.SHAPE == (84, 84)  # as the text on Atari says
