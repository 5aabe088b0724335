"""xladder from Python: what `train` gives back, and what it says when it cannot."""

import asyncio
import csv
import inspect
import json
import os
import pydoc
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import xladder
from tests.conftest import TINY_CART, TINY_GRID
from xladder import progress as drawn
from xladder.callbacks import Interrupts
from xladder.cli.main import main
from xladder.errors import UsageError
from xladder.runs.plan_files import describe_plan, parse_plan


@pytest.fixture(scope="module")
def result():
    from tests.conftest import TINY

    return xladder.train("treasurehunt", rung="fused", config=TINY, seed=3, seeds=2, epochs=9)


def test_train_gives_metrics_by_seed_and_epoch_and_the_parameters(result, tiny):
    assert result.metrics["return"].shape == (2, 9)
    assert np.isnan(result.metrics["loss"][:, 0]).all() and np.isfinite(result.metrics["loss"][:, -1]).all()
    assert result.params["head"]["hidden"]["kernel"].shape == (2, tiny.world.num_agents, 16, 16)
    assert not np.array_equal(result.metrics["return"][0], result.metrics["return"][1])
    agents = [f"return_agent_{i}" for i in range(tiny.world.num_agents)]
    np.testing.assert_allclose(sum(result.metrics[name] for name in agents), result.metrics["return"], rtol=1e-6)


@pytest.mark.slow
def test_a_population_holds_the_runs_of_its_seeds(result, tiny):
    alone = xladder.train("treasurehunt", rung="fused", config=tiny, seed=4, epochs=9)
    np.testing.assert_array_equal(alone.metrics["epsilon"][0], result.metrics["epsilon"][1])
    # Worlds and exploration are drawn alike; actions part only where rounding decides, which takes some epochs.
    np.testing.assert_array_equal(alone.metrics["return"][0, :4], result.metrics["return"][1, :4])


@pytest.mark.slow
def test_seeds_on_a_rung_for_one_come_one_after_another(tiny):
    several = xladder.train("treasurehunt", rung="sequential", config=tiny, seeds=2, epochs=3)
    second = xladder.train("treasurehunt", rung="sequential", config=tiny, seed=1, epochs=3)
    np.testing.assert_array_equal(several.metrics["return"][1], second.metrics["return"][0])
    assert several.params["torso"]["bias"].shape[:2] == (2, tiny.world.num_agents)


def test_a_saved_result_opens_as_it_was(result, tmp_path):
    folder = result.save(tmp_path / "kept")
    again = xladder.load(folder)
    assert again.plan == result.plan
    for name, values in result.metrics.items():
        np.testing.assert_allclose(again.metrics[name], values, rtol=1e-6)
    np.testing.assert_array_equal(again.params["torso"]["kernel"], result.params["torso"]["kernel"])
    assert xladder.evaluate(folder, episodes=4) == result.evaluate(episodes=4)
    with pytest.raises(UsageError, match="not empty"):
        result.save(folder)


def test_what_was_saved_is_finished_and_not_trained_again(result, tmp_path, capsys):
    folder = result.save(tmp_path / "run")
    assert main(["resume", str(folder)]) == 0
    assert "is complete" in capsys.readouterr().out


def test_an_evaluation_disturbs_nothing_and_can_be_repeated(result):
    first, other = result.evaluate(episodes=6), result.evaluate(episodes=6, seed=1)
    assert first == result.evaluate(episodes=6)
    assert first["mean_return"] != other["mean_return"]
    assert first["episodes"] == 6 and first["seeds"] == 2


def test_more_episodes_than_one_call_plays_are_the_same_episodes(tiny, result, monkeypatch):
    from xladder.core.compiling import compiled
    from xladder.families.multi_agent import evaluation

    whole = evaluation.evaluate(tiny, result.params, 5, 0, compiled)
    monkeypatch.setattr(evaluation, "AT_ONCE", 2)
    parts = evaluation.evaluate(tiny, result.params, 5, 0, compiled)
    np.testing.assert_array_equal(whole.random, parts.random)
    np.testing.assert_allclose(whole.returns, parts.returns)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"learner": {"lrr": 1.0}}, "learner.lr"),
        ({"learner": {"lr": "fast"}}, "type float"),
        ({"learner": 3}, "mapping"),
        ({"world": {"observe": "never"}}, "in_turn"),
        ({"world": {"item_names": "gem"}}, "list"),
        ({"epochs": True}, "type int"),
        ({"epochs": 1.5}, "type int"),
        ({"epochs": float("inf")}, "type int"),
        ({"epochs": 1e300}, "type int"),
        ({"preset": "dmo"}, "demo"),
        ({"rung": "fusd"}, "fused"),
        ({"device": "gpu"}, "no `gpu` here"),
    ],
)
def test_what_is_wrong_is_said(options, said, tiny):
    with pytest.raises(UsageError, match=said):
        xladder.train("treasurehunt", **({"config": tiny} | options))


@pytest.mark.parametrize("name", ["seed", "seeds"])
def test_true_is_no_number_of_seeds(name, tiny):
    with pytest.raises(UsageError, match="is not a config that xladder wrote"):
        parse_plan(describe_plan(xladder.plan("treasurehunt", config=tiny)) | {name: True}, "it")


def test_without_pytorch_everything_else_works_and_the_pip_line_is_given():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import xladder\n"
        "from xladder.errors import UsageError\n"
        "from xladder.rungs import fused, sequential\n"
        "try:\n    xladder.train('treasurehunt', rung='torch', epochs=1)\n"
        "except UsageError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[torch]'" in done.stdout


# What is recorded.

PLAIN = replace(TINY_GRID, iterations=12, evaluate_every=0)
GRID = replace(PLAIN, evaluate_every=6)
RECORDED = [
    "config.json",
    "environment.json",
    "metrics.csv",
    "timings.json",
    "log.txt",
    "finished.json",
    "lock",
    "media/curves.png",
    "media/distribution.gif",
    "checkpoints/agents.safetensors",
    "checkpoints/snapshots.safetensors",
    "checkpoints/tick-000000012/manifest.json",
]


def record(path, **options):
    given = {"rung": "fused", "config": GRID, "seeds": [7, 2], "checkpoint_every": 4, "eval_episodes": 20}
    return xladder.train("hypergrid", out=path, progress=False, **given | options)


def what_came_of(folder):
    """The digest of the last state, and the metrics without the clock."""
    newest = sorted((folder / "checkpoints").glob("tick-?????????"))[-1]
    rows = list(csv.reader((folder / "metrics.csv").open(newline="")))
    return json.loads((newest / "manifest.json").read_text())["digest"], sorted(row[:-1] for row in rows)


def stop_at(tick):
    return lambda progress: progress.tick >= tick


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return record(tmp_path_factory.mktemp("recorded") / "run")


@pytest.mark.slow
def test_python_keeps_all_that_the_command_keeps(recorded, tmp_path):
    for file in RECORDED:
        assert (recorded.path / file).exists(), file
    assert any((recorded.path / "events/seed-7").glob("events*"))
    assert json.loads((recorded.path / "timings.json").read_text())["evaluation"]["mean_return"]
    log = (recorded.path / "log.txt").read_text()
    assert "seeds 7, 2, on cpu" in log and "12/12 iterations" in log
    words = ["train", "hypergrid", "--config", str(recorded.path / "config.json"), "--seed", "7"]
    assert main([*words, "--out", str(tmp_path / "typed")]) == 0
    listed = [{str(p.relative_to(f)) for p in f.rglob("*") if "events" not in str(p) and "state" not in str(p)}
              for f in (recorded.path, tmp_path / "typed")]  # fmt: skip
    assert listed[0] == listed[1]
    typed = xladder.load(tmp_path / "typed")
    np.testing.assert_allclose(typed.metrics["loss"], recorded.metrics["loss"][:1], rtol=1e-3)


@pytest.mark.slow
def test_any_seeds_may_be_listed_and_come_back_in_their_order(recorded):
    assert json.loads((recorded.path / "config.json").read_text())["seeds"] == [7, 2]
    again = xladder.load(recorded.path)
    assert again.plan == recorded.plan and again.seeds == (7, 2) and again.path == recorded.path
    np.testing.assert_allclose(again.metrics["loss"], recorded.metrics["loss"], rtol=1e-5)
    alone = xladder.train("hypergrid", "fused", config=PLAIN, seed=2)
    np.testing.assert_allclose(alone.metrics["loss"][0], recorded.metrics["loss"][1], rtol=1e-3)
    assert parse_plan(describe_plan(recorded.plan), "it") == recorded.plan
    assert "seeds" in xladder.plan("hypergrid", seeds=range(3)).__dict__ and xladder.plan("hypergrid").seeds == (0,)


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1], [True], ["a"], "12", 1.5, True, None, {3: 4}])
def test_what_are_no_seeds_is_said(seeds):
    with pytest.raises(UsageError, match="seeds"):
        xladder.plan("hypergrid", seeds=seeds)


def test_a_list_of_seeds_has_no_first_one_beside_it(recorded, capsys):
    with pytest.raises(UsageError, match="lists all seeds"):
        xladder.plan("hypergrid", seeds=[1, 4], seed=1)
    assert xladder.plan("hypergrid", seeds=np.array([4, 1])).seeds == (4, 1)
    assert main(["train", "hypergrid", "--config", str(recorded.path / "config.json")]) == 2
    assert "seeds 7, 2" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("rung", ["fused", pytest.param("sequential", marks=pytest.mark.slow)])
def test_a_run_that_was_stopped_goes_on_as_if_nothing_had_happened(rung, recorded, tmp_path):
    whole = recorded if rung == "fused" else record(tmp_path / "whole", rung=rung, eval_episodes=0)
    part = record(tmp_path / "part", rung=rung, callback=stop_at(5), eval_episodes=0)
    assert 5 <= part.units_done < 12 and not (part.path / "finished.json").exists()
    assert (part.path / "checkpoints/agents.safetensors").exists() and "of 12 iterations" in repr(part)
    seen = []
    rest = xladder.resume(part.path, callback=lambda progress: seen.append(progress.tick), progress=False)
    assert what_came_of(part.path) == what_came_of(whole.path)
    assert seen[-1] == 12 and rest.path == part.path and (part.path / "finished.json").exists()
    np.testing.assert_allclose(rest.metrics["loss"], whole.metrics["loss"], rtol=1e-5)
    finished = xladder.resume(part.path)
    np.testing.assert_array_equal(finished.params["log_z"], rest.params["log_z"])


@pytest.mark.slow
def test_train_resumes_what_is_there_if_it_is_the_same_run(tmp_path):
    options = {"config": PLAIN, "seeds": 1, "eval_episodes": 0, "resume": True}
    record(tmp_path / "run", callback=stop_at(5), **options)
    with pytest.raises(UsageError, match="a different run"):
        record(tmp_path / "run", seed=3, **options)
    assert record(tmp_path / "run", **options).is_complete
    assert record(tmp_path / "run", **options).is_complete  # which is only loaded


def test_what_was_not_recorded_is_saved_like_what_was(recorded, tmp_path):
    folder = xladder.load(recorded.path).save(tmp_path / "copy", eval_episodes=20)
    for file in RECORDED[:-1]:
        assert (folder / file).exists(), file
    again = xladder.load(folder)
    pictures = [(s.tick, s.seed) for s in recorded.snapshots]
    assert pictures == [(s.tick, s.seed) for s in again.snapshots] and len(set(pictures)) == 6
    assert sorted({s.tick for s in recorded.snapshots}) == [0, 6, 12]
    np.testing.assert_array_equal(again.snapshots[1].picture, recorded.snapshots[1].picture)
    assert again.tick_seconds and again.plan == recorded.plan


@pytest.mark.parametrize("option", ["checkpoint_every", "eval_episodes", "resume"])
def test_what_is_about_keeping_needs_a_place(option):
    with pytest.raises(UsageError, match="needs `out`"):
        xladder.train("hypergrid", config=GRID, **{option: 1})


def test_a_start_that_fails_leaves_no_folder(tmp_path):
    for wrong in ({"callback": 3}, {"keep": 1}, {"on_nan": "maybe"}, {"device": "gpu"}):
        with pytest.raises(UsageError):
            record(tmp_path / "run", **wrong)
        assert not (tmp_path / "run").exists()


# What is heard of a run while it goes on.


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("sequential", "parallel", "hybrid", "mesh")]


@pytest.mark.parametrize("rung", ["torch", "fused", *SLOW])
def test_a_callback_hears_of_every_chunk_on_every_rung(rung):
    seen = []

    def callback(progress):
        seen.append(progress)
        assert progress.params()["log_z"].shape == (1,)
        if progress.tick >= 3:
            progress.stop()

    options = {"mesh": "data=2"} if rung == "mesh" else {}
    result = xladder.train("hypergrid", rung, config=TINY_GRID, seed=4, callback=callback, **options)
    assert result.units_done == seen[-1].tick < TINY_GRID.iterations
    assert all(one.seeds == (4,) and one.rung == rung and one.workload == "hypergrid" for one in seen)
    assert sum(one.metrics["loss"].shape[1] for one in seen) == seen[-1].steps and seen[-1].unit == "iterations"
    assert seen[-1].ticks == TINY_GRID.iterations and seen[-1].elapsed >= seen[-1].seconds > 0


@pytest.mark.slow
def test_a_callback_hears_of_actors_too():
    seen = []

    def callback(progress):
        seen.append(progress.params())
        return progress.tick > 4

    result = xladder.train("cartpole", "actors", config=TINY_CART, actors=1, callback=callback)
    assert seen and result.units_done < TINY_CART.steps


@pytest.mark.slow
def test_steps_are_counted_in_the_unit_of_the_length():
    seen = []
    xladder.train("cartpole", "fused", config=TINY_CART, callback=lambda p: seen.append((p.tick, p.steps, p.unit)))
    assert seen[-1] == (TINY_CART.ticks, TINY_CART.steps, "steps")


@pytest.mark.slow
@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, asyncio.CancelledError])
def test_a_callback_that_raises_ends_the_run_and_what_it_has_learned_is_kept(tmp_path, error):
    def callback(progress):
        if progress.tick >= 5:
            raise error("mine")

    with pytest.raises(error, match="mine"):
        record(tmp_path / "run", config=PLAIN, seeds=1, callback=callback, eval_episodes=0)
    assert f"{error.__name__}: mine" in (tmp_path / "run/log.txt").read_text()
    assert not (tmp_path / "run/finished.json").exists()
    assert (tmp_path / "run/checkpoints/agents.safetensors").exists()
    assert xladder.resume(tmp_path / "run", progress=False).is_complete
    with pytest.raises(error):
        xladder.train("hypergrid", "fused", config=PLAIN, callback=callback)


@pytest.mark.slow
def test_ctrl_c_ends_after_the_chunk_and_is_passed_on(tmp_path):
    def callback(progress):
        if progress.tick >= 5:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(xladder.Interrupted, match=r"Resume with: xladder\.resume") as stopped:
        record(tmp_path / "run", config=PLAIN, seeds=1, callback=callback, eval_episodes=0)
    assert isinstance(stopped.value, KeyboardInterrupt) and 5 <= stopped.value.result.units_done < 12
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not (tmp_path / "run/finished.json").exists() and (tmp_path / "run/media/curves.png").exists()
    assert xladder.resume(tmp_path / "run", progress=False).is_complete


def test_ctrl_c_before_anything_is_trained_ends_it():
    interrupts = Interrupts()
    with interrupts:
        signal.raise_signal(signal.SIGINT)
        interrupts.waiting("training", 0.0)
        with pytest.raises(KeyboardInterrupt):
            interrupts.waiting("compiling", 0.0)
        with pytest.raises(KeyboardInterrupt):  # the second time the user means it
            signal.raise_signal(signal.SIGINT)
    with Interrupts() as interrupts:
        interrupts.end_training()
        with pytest.raises(KeyboardInterrupt):  # nothing is left to wait for
            signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
def test_progress_is_shown_where_somebody_looks(capsys, monkeypatch):
    xladder.train("hypergrid", "fused", config=PLAIN)
    assert capsys.readouterr().out == ""
    xladder.train("hypergrid", "fused", config=PLAIN, progress=True)
    said = capsys.readouterr().out
    assert "hypergrid on fused, seed 0, on cpu" in said and "12/12 iterations" in said
    plan = xladder.plan("hypergrid", config=GRID)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert isinstance(drawn.drawing(plan), drawn.ProgressBar)
    assert type(drawn.drawing(plan, False)) is drawn.Drawing


@pytest.mark.slow
def test_a_notebook_has_a_bar_of_its_own(monkeypatch):
    shown = []

    class Handle:
        def update(self, data, raw):
            shown.append(data)

    def display(data, raw, display_id):
        shown.append(data)
        return Handle()

    monkeypatch.setattr(drawn, "notebook_display", lambda: display)
    monkeypatch.setattr(drawn, "NOTEBOOK_SECONDS", 0.0)
    xladder.train("hypergrid", "fused", config=PLAIN)
    assert "12/12 iterations" in shown[-1]["text/plain"] and "<progress value='12'" in shown[-1]["text/html"]


# What a person sees who looks round.


def test_only_public_names_are_offered_and_all_are_explained():
    assert {"train", "resume", "load", "evaluate", "compare", "Result", "Progress"} <= set(dir(xladder))
    assert not {"Any", "TYPE_CHECKING", "import_module"} & set(dir(xladder))
    assert dir(xladder.parity) == ["ParityError", "Report", "check"]
    for name in xladder.__all__:
        assert getattr(xladder, name).__doc__, name
    text = pydoc.plain(pydoc.render_doc(xladder))
    assert "xladder.resume(" in text and "checkpoint_every: 'int | None' = None" in text
    for call in (xladder.train, xladder.plan):
        assert all(name in call.__doc__ for name in ("gymnax", "Gymnasium", "JaxMARL", "PettingZoo", "sorrel"))
    assert "Interrupted:" in xladder.train.__doc__ and "Interrupted:" in xladder.resume.__doc__
    for call in (xladder.train, xladder.resume, xladder.load, xladder.evaluate, xladder.compare, xladder.plan):
        assert "Args:" in call.__doc__ and "Returns:" in call.__doc__
        for name, parameter in inspect.signature(call).parameters.items():
            assert parameter.annotation is not parameter.empty and f"{name}:" in call.__doc__, name


def test_a_result_is_shown_in_a_few_lines(recorded, result):
    for one in (recorded, result):
        text = repr(one)
        assert len(text) < 600 and len(text.splitlines()) <= 9, text
        assert "return" in text and "seeds" in text
        assert one._repr_html_().count("<tr>") >= 4
    assert "7, 2" in repr(recorded) and str(recorded.path) in repr(recorded) and "12 of 12 iterations" in repr(recorded)


def test_what_is_no_workload_is_refused_with_a_sentence():
    class Maze:
        pass

    for call in (xladder.train, xladder.plan, xladder.compare):
        for wrong in (Maze(), Maze, 3, None):
            with pytest.raises(UsageError, match=r"given by its name|none of the APIs"):
                call(wrong)
    with pytest.raises(UsageError, match="keywords"):
        xladder.plan("hypergrid", config={"loss": "tb"})
    with pytest.raises(UsageError, match="keywords"):
        xladder.plan("hypergrid", config=TINY_CART)


WRONG = {
    "rung": [3, ["torch"]],
    "preset": [3, None],
    "protocol": [4, []],
    "device": [3, "npu"],
    "mesh": [3],
    "ray": [3],
    "imports": [3, [3], None],
    "changes": [3, {3: 4}],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_an_argument_of_a_wrong_type_is_named(name, value):
    calls = [xladder.train] if name == "ray" else [xladder.train, xladder.compare]
    for call in calls:
        with pytest.raises(UsageError, match=rf"^`{name}` is .*, but it has to be "):
            call("cartpole", **{name: value})


def test_other_arguments_of_a_wrong_type_are_named(recorded):
    for name, call in {
        "threads": lambda: xladder.train("cartpole", "torch", threads="x"),
        "actors": lambda: xladder.train("cartpole", "actors", actors=1.5),
        "lock_step": lambda: xladder.train("cartpole", "actors", lock_step="x"),
        "options": lambda: xladder.plan("cartpole", options=3),
        "tags": lambda: xladder.train("cartpole", tags=3),
        "track": lambda: xladder.train("cartpole", track=3),
        "start_from": lambda: xladder.train("cartpole", start_from=3),
        "rungs": lambda: xladder.compare("cartpole", rungs=3),
        "rung": lambda: xladder.compare("cartpole", rungs=[3]),
        "on_row": lambda: xladder.compare("cartpole", on_row=3),
        "steps": lambda: xladder.resume("runs/cart", steps="x"),
        "mesh": lambda: xladder.resume("runs/cart", mesh=3),
        "episodes": lambda: recorded.evaluate("x"),
        "seed": lambda: recorded.evaluate(seed="x"),
    }.items():
        with pytest.raises(UsageError, match=rf"^`{name}` is .*, but it has to be "):
            call()
    with pytest.raises(UsageError, match=r"^`episodes` is 2\.5, but it has to be a whole number"):
        recorded.evaluate(2.5)
    from xladder.registry import RungOptions

    assert type(xladder.plan("cartpole", "torch", options=RungOptions(threads=np.int64(2))).options.threads) is int


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seeds": -1}, "`seeds` is -1"),
        ({"start_from": "nope"}, "`start_from` is nope"),
        ({"out": "a", "name": "b"}, "`name` and `out` both"),
        ({"out": "a", "eval_episodes": -1}, "`eval_episodes` is -1"),
        ({"rung": "mesh"}, "The rung `mesh` needs `mesh`: `seeds=4`"),
        ({"rung": "fused", "threads": 2}, "`threads` is for "),
    ],
)
def test_errors_name_keywords_and_not_flags(given, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as error:
        xladder.train("hypergrid", **given)
    assert said in str(error.value) and "--" not in str(error.value)


def test_flags_become_keywords_where_python_has_them():
    from xladder.keywords import as_keywords

    for flags, keywords in {
        "use `--rung fused`, or `--seed 3`": "use `rung='fused'`, or `seed=3`",
        "`--on-nan` and `--tag`": "`on_nan` and `tags`",
    }.items():
        assert as_keywords(flags, {}) == keywords
    commands = "`--learner.lr`, `--debug nans`, `xladder train x --out y`"
    assert as_keywords(commands, {}) == commands
    assert as_keywords("choose another `--out`", {"out": "path"}) == "choose another `path`"


def test_a_save_into_a_folder_with_something_in_it_names_its_own_argument(recorded):
    with pytest.raises(UsageError, match="choose another `path`"):
        recorded.save(recorded.path)


def test_no_evaluation_and_no_checkpoints_need_no_place(monkeypatch):
    monkeypatch.setattr("xladder.training._watch", lambda *given, **options: "trained")
    assert xladder.train("hypergrid", config=PLAIN, eval_episodes=0, checkpoint_every=0) == "trained"


def test_a_policy_says_whose_it_is(recorded):
    assert repr(recorded.policy()) == "SamplerPolicy of hypergrid, seed 7, agent 0"
    assert "hypergrid, seed 2" in repr(recorded.policy(seed=2))


def test_compare_runs_what_the_command_runs(monkeypatch, tmp_path):
    seen = []

    def measure_apart(plan):
        seen.append(plan.config)
        raise UsageError("enough")

    monkeypatch.setattr("xladder.runs.compare.measure_apart", measure_apart)
    monkeypatch.chdir(tmp_path)

    def configs(name, words, **given):
        seen.clear()
        with pytest.raises(UsageError, match="enough"):
            xladder.compare(name, ["fused"], **given)
        assert main(["compare", name, "--rungs", "fused", *words]) == 2
        return seen

    python, command = configs("cartpole", ["--preset", "double"], preset="double")
    assert python == command and python.steps == 3_328  # as documented
    words = ["--steps", "640", "--learner.memory", "500"]
    python, command = configs("cartpole", words, steps=640, learner={"memory": 500})
    assert python == command and (python.steps, python.learner.memory) == (640, 500)
    whole = xladder.plan("cartpole").config
    assert configs("cartpole", [], config=whole)[0] == whole  # a config is taken as it is


def test_modules_are_imported_where_they_are_named(tmp_path, monkeypatch, recorded):
    (tmp_path / "mine_to_import.py").write_text("SEEN = 1")
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda **given: xladder.plan("hypergrid", **given),
        lambda **given: xladder.load(recorded.path, changed_code=True, **given),
        lambda **given: xladder.evaluate(recorded.path, 5, changed_code=True, **given),
        lambda **given: xladder.resume(recorded.path, changed_code=True, **given),
    ):
        call(imports=["mine_to_import"])
        assert sys.modules.pop("mine_to_import").SEEN
        with pytest.raises(UsageError, match="no module"):
            call(imports=["not_there_at_all"])
        with pytest.raises(UsageError, match="list of modules"):
            call(imports="mine_to_import")
    from xladder import user_code

    monkeypatch.setattr(user_code, "_named", {})
    assert not user_code._changes_accepted
