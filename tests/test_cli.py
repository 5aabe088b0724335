"""Commands as a user types them, in a temporary folder, with good and with bad input."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from xladder.cli.main import main
from xladder.cli.options import parse_with_config, with_workload
from xladder.cli.train import TrainOptions
from xladder.errors import UsageError
from xladder.registry import find_workload
from xladder.runs.folders import new_file

# As flags, what tests/conftest.py calls TINY, so that its compiled programs serve here too. Runs here have two
# seeds, so that what is compiled for `trained` serves all of them.
SMALL = [
    *("--world.height", "6", "--world.width", "6", "--world.num-agents", "2", "--world.max-turns", "8"),
    *("--world.radius", "1", "--world.spawn-prob", "0.1", "--learner.width", "16", "--learner.cosines", "8"),
    *("--learner.quantiles", "4", "--learner.act-quantiles", "4", "--learner.batch-size", "8"),
    *(
        "--learner.memory",
        "40",
        "--learner.n-frames",
        "3",
        "--learner.epsilon",
        "0.5",
        "--learner.target-update-period",
        "3",
    ),
]


def call(*words: str) -> int:
    """`xladder …` in this process; tyro ends with SystemExit where it complains itself."""
    try:
        return main(list(words))
    except SystemExit as stop:
        return int(stop.code or 0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run directory."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert call("train", "treasurehunt", "--epochs", "12", "--seeds", "2", "--out", str(folder), *SMALL) == 0
    return folder


def test_train_writes_the_whole_run_directory(trained):
    for file in [
        "config.json",
        "environment.json",
        "metrics.csv",
        "timings.json",
        "log.txt",
        "media/curves.png",
        "media/replay.gif",
        "checkpoints/agents.safetensors",
    ]:
        assert (trained / file).stat().st_size > 0, file
    assert any((trained / "events").rglob("events.out.tfevents*"))
    rows = list(csv.DictReader((trained / "metrics.csv").open()))
    assert [(row["seed"], row["epoch"]) for row in rows[:1]] == [("0", "0")]
    assert {(int(row["seed"]), int(row["epoch"])) for row in rows} == {(s, e) for s in (0, 1) for e in range(12)}
    assert rows[0]["loss"] == "" and float(rows[-1]["loss"]) > 0
    assert "PATH" not in (trained / "environment.json").read_text()


@pytest.mark.slow
def test_a_run_can_be_repeated_from_its_config(trained, tmp_path):
    assert call("train", "treasurehunt", "--config", str(trained / "config.json"), "--out", str(tmp_path / "b")) == 0
    ours, theirs = (
        [row | {"seconds": ""} for row in csv.DictReader((folder / "metrics.csv").open())]
        for folder in (trained, tmp_path / "b")
    )
    assert ours == theirs


def test_eval_reports_the_agreed_keys(trained, tmp_path, capsys):
    assert call("eval", str(trained), "--episodes", "5", "--json", str(tmp_path / "score.json")) == 0
    score = json.loads((tmp_path / "score.json").read_text())
    assert {"mean_return", "ci95", "episodes", "random_return", "per_agent"} <= set(score)
    assert score["episodes"] == 5 and len(score["per_agent"]) == 2
    assert abs(sum(score["per_agent"]) - score["mean_return"]) < 1e-3
    assert "random play" in capsys.readouterr().out


@pytest.mark.slow
def test_compare_measures_each_rung_apart(tmp_path, capsys):
    files = ["--json", str(tmp_path / "c.json"), "--chart", str(tmp_path / "c.png")]
    assert call("compare", "treasurehunt", "--rungs", "torch,fused", "--epochs", "12", *files, *SMALL) == 0
    found = json.loads((tmp_path / "c.json").read_text())
    assert {"workload", "rows", "device", "versions", "config"} <= set(found)
    keys = {"rung", "seconds_per_epoch", "compile_seconds", "speedup", "return_first", "return_last", "peak_memory_mb"}
    assert [row["rung"] for row in found["rows"]] == ["torch", "fused"]
    for row in found["rows"]:
        assert keys <= set(row) and row["seconds_per_epoch"] > 0 and row["peak_memory_mb"] > 50
        assert row["speedup"] == pytest.approx(found["rows"][0]["seconds_per_epoch"] / row["seconds_per_epoch"])
    assert (tmp_path / "c.png").stat().st_size > 0
    text = capsys.readouterr().out
    assert "in_turn" in text and "fused" in text


@pytest.mark.slow
def test_parity_passes_and_writes_its_levels(tmp_path):
    file = tmp_path / "p.json"
    assert call("parity", "treasurehunt", "--updates", "5", "--json", str(file), *SMALL) == 0
    levels = json.loads(file.read_text())["levels"]
    assert all(level["passed"] and level["max_abs_diff"] <= level["tolerance"] for level in levels)
    assert {"level", "max_abs_diff", "tolerance", "passed"} == set(levels[0])


def test_parity_exits_1_where_the_twins_differ(monkeypatch, capsys):
    from xladder.families.multi_agent import parity

    failed = [parity.Level("forward", 1.0, 1e-5, False)]
    monkeypatch.setattr(parity, "levels", lambda *_: failed)
    assert call("parity", "treasurehunt", *SMALL) == 1
    assert "forward" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["worlds", "rungs", "doctor", "--help", "--version"])
def test_the_small_commands_answer(command, capsys):
    assert call(command) == 0
    assert "xladder" in capsys.readouterr().out or command == "rungs"


@pytest.mark.parametrize("command", ["train", "compare", "parity", "eval", "sample", "worlds", "rungs", "doctor"])
def test_every_command_has_help(command, capsys):
    assert call(command, "--help") == 0
    assert "usage" in capsys.readouterr().out.lower()


BAD = {
    "": "needs a workload",
    "treasurehnt": "treasurehunt",
    "treasurehunt --rung fusd": "Did you mean `fused`",
    "treasurehunt --rung mesh": "`mesh` needs `--mesh`",
    "treasurehunt --preset dmo": "Did you mean `demo`",
    "treasurehunt --learner.lrr 1": "--learner.lr",
    "treasurehunt --learner.lr fast": "lr",
    "treasurehunt --learner.lr -1": "positive",
    "treasurehunt --learner.lr nan": "positive",
    "treasurehunt --world.num-agents 65": "64 cells",
    "treasurehunt --world.radius -1": "radius",
    "treasurehunt --world.height 2": "3 or more",
    "treasurehunt --learner.batch-size 2000": "memory of 1024",
    "treasurehunt --world.spawn-prob 1.5": "[0, 1]",
    "treasurehunt --learner.epsilon -0.1": "[0, 1]",
    "treasurehunt --learner.gamma nan": "[0, 1]",
    "treasurehunt --epochs 0": "1 or more",
    "treasurehunt --epochs -3": "1 or more",
    "treasurehunt --seeds 0": "1 or more",
    "treasurehunt --seed -1": "seeds lie",
    "treasurehunt --seeds 2000000000": "`--seeds` is 2000000000, but a run has 100,000 at most",
    "treasurehunt --seed 2147483647 --seeds 2": "`--seeds` is 2, but from `--seed 2147483647` on there are 1 below",
    "treasurehunt --rung torch --threads 100000": "it has to lie in 1 … 1,024",
    "treasurehunt --rung torch --threads 0": "it has to lie in 1 … 1,024",
    "treasurehunt --world.item-names gem": "as many",
    "treasurehunt --world.item-names a a a": "own name",
    "treasurehunt --world.item-names loss a b": "own",
    "treasurehunt --preset demo --preset sorrel": "2 times",
    "treasurehunt --learner.epsilon 0.1 --learner.epsilon-min 0.2": "cannot start below",
    "treasurehunt --device gpu": "no `gpu` here",
    "treasurehunt --rung compiled --device gpu": "no `gpu` here",
    "treasurehunt --config nowhere.json": "nowhere.json",
    "treasurehunt --eval-episodes -1": "0 to 10,000,000",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_ends_with_a_sentence_and_writes_nothing(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = call("train", *line.split())
    said = capsys.readouterr()
    text = re.sub(r"[│╭╰─╮╯\s]+", " ", said.err + said.out)
    assert code == 2, text
    assert BAD[line] in text
    assert "Traceback" not in text
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("words", [["--steps", "1.6e5"], ["--steps=160_000"], ["--steps=16E4"]])
def test_whole_numbers_may_be_written_as_powers(words):
    _, config = parse_with_config(TrainOptions, find_workload("cartpole"), words, "xladder train", "")
    assert config.steps == 160_000


@pytest.mark.parametrize("words", ["1e2 6.4E1 32", "1_00 64 3.2e1 --seed 1", "100 64 32 --steps 1e5"])
def test_each_of_several_whole_numbers_may_be_a_power(words):
    flags = ["--learner.hidden", *words.split()]
    assert parse_with_config(TrainOptions, find_workload("cartpole"), flags, "xladder train", "")[1].learner.hidden == (
        100,
        64,
        32,
    )


def test_a_device_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["train", "hypergrid", "--device", "tpu", "--iterations", "10", "--out", str(tmp_path / "run")]) == 2
    assert "JAX finds no `tpu` here, only: cpu." in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("train hypergrid --loss nope", "`--loss` is nope, but it has to be one of tb, db, subtb, fm, "),
        ("train cartpole --steps 1.5e0", "`--steps` is 1.5e0, but it has to be a whole number."),
        ("train cartpole --seed 1e30", f"`--seed` is {10**30}, but seeds lie in [0, 2³¹)."),
        ("train cartpole --learner.lr=x", "`--learner.lr` is x, but it has to be a number."),
        ("train cartpole --outt b", "There is no `--outt` here: did you mean `--out`?"),
        ("train treasurehunt --world.shared", "There is no `--world.shared` here: `xladder train treasurehunt --help`"),
        ("train cartpole --out a --out b", "`--out` is given 2 times: give it once."),
        ("train cartpole --learner.batch-size 8 --learner.batch_size=9", "`--learner.batch-size` is given 2 times"),
        ("train cartpole --tag a --tag b --steps x", "`--steps` is x, but it has to be a whole number."),
        ("train cartpole --learner.double=maybe", "`--learner.double` takes no value: leave out `=maybe`."),
        ("train hypergrid --device npu", "`--device` is npu, but it has to be one of cpu, gpu, tpu."),
        ("export run --to onnx --out f", "`--to` is onnx, but it has to be one of torch, safetensors, sorrel."),
        ("export run", "`xladder export` needs `--to {torch,safetensors,sorrel}` and `--out PATH`."),
        (
            "train cartpole --learner.memory 1e30",
            f"`--learner.memory` is {10**30}, but it has to be 2,147,483,647 or less.",
        ),
        ("train cartpole --learner.hidden 64 many", "`--learner.hidden` is 64 many, but it has to be whole numbers."),
        ("sample run -n many", "`--n` is many, but it has to be a whole number."),
        ("check", "`xladder check` needs `WORLD`."),
        ("runs --sort", "`--sort` needs a value after it."),
        ("eval run other", "`other` is one word too many: `xladder eval --help` says what it takes."),
    ],
)
def test_a_wrong_flag_or_value_is_one_line_that_names_it(line, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "40")  # a narrow terminal breaks no names
    assert main(line.split()) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"xladder: {sentence}") and said.err.count("\n") == 1 and not said.out
    assert not list(tmp_path.iterdir())


def test_an_unknown_command_offers_the_nearest(capsys):
    assert call("trian") == 2
    assert "`train`" in capsys.readouterr().err


def test_a_folder_with_something_in_it_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert call("train", "treasurehunt", "--out", str(tmp_path)) == 2
    assert "not empty" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert call("train", "treasurehunt", "--out", str(tmp_path / "file" / "run")) == 2
    assert str(tmp_path / "file") in capsys.readouterr().err


@pytest.mark.parametrize("rungs", [",", "torch,fusd"])
def test_compare_refuses_rungs_that_are_not(rungs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call("compare", "treasurehunt", "--rungs", rungs) == 2
    assert "There are" in capsys.readouterr().err


def test_eval_refuses_what_is_not_a_run(tmp_path, capsys):
    assert call("eval", str(tmp_path)) == 2
    assert "not a run directory" in capsys.readouterr().err


def test_eval_tells_a_run_without_agents_and_a_damaged_one(trained, tmp_path, capsys):
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.json").write_bytes((trained / "config.json").read_bytes())
    assert call("eval", str(folder)) == 3
    (folder / "checkpoints/agents.safetensors").write_bytes(b"not this")
    assert call("eval", str(folder)) == 3
    assert "is not a safetensors file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"workload": 3}', '{"workload": "treasurehunt", "rung": "fused", "seed": 0}', "\x00"]
)
def test_a_config_that_is_none_is_refused(text, tmp_path, capsys):
    (tmp_path / "config.json").write_text(text)
    assert call("train", "treasurehunt", "--config", str(tmp_path / "config.json")) == 2
    assert "config" in capsys.readouterr().err


def test_a_config_says_which_workload_is_trained(trained, tmp_path, capsys):
    config = trained / "config.json"
    assert with_workload(["--config", str(config)], "xladder train") == ["treasurehunt", "--config", str(config)]
    assert with_workload(["cartpole", f"--config={config}"], "xladder train")[0] == "cartpole"  # refused later
    own = tmp_path / "config.json"
    own.write_text(json.dumps(json.loads(config.read_text()) | {"workload": "gym/evil:World-v0"}))
    assert call("train", f"--config={own}") == 2
    assert f"`xladder train gym/evil:World-v0 --config={own}`" in capsys.readouterr().err


def test_others_may_read_what_a_run_wrote(trained):
    modes = {path.name: path.stat().st_mode & 0o777 for path in trained.rglob("*") if path.is_file()}
    assert set(modes.values()) == {0o666 & ~current_umask()}, modes


def current_umask():
    os.umask(found := os.umask(0))
    return found


@pytest.mark.slow
def test_a_loss_that_is_no_number_ends_the_run(tmp_path, capsys):
    out = ["--out", str(tmp_path / "run"), "--learner.lr", "1e38", "--epochs", "40", "--seeds", "2"]
    assert call("train", "treasurehunt", *out, *SMALL) == 4
    assert "stopped being a number" in capsys.readouterr().err


@pytest.mark.slow
def test_a_disk_that_fills_up_ends_the_run_with_a_sentence(tmp_path):
    words = ["train", "treasurehunt", "--epochs", "100000", "--out", str(tmp_path / "run"), *SMALL]
    words += ["--checkpoint-every", "2000"]
    command = "ulimit -f 16; exec " + shlex.join([sys.executable, "-m", "xladder.cli.main", *words])
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}  # it would hold half files
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 5, done.stderr
    assert f"xladder resume {tmp_path / 'run'}" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_parameters_that_are_no_numbers_are_not_kept(tmp_path, capsys):
    out = ["--out", str(tmp_path / "run"), "--learner.sigma", "1e38", "--epochs", "12", "--seeds", "2"]
    assert call("train", "treasurehunt", *out, *SMALL) == 4
    assert not (tmp_path / "run/checkpoints/agents.safetensors").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the event file, left open
def test_a_run_goes_on_when_nobody_reads_its_output(tmp_path, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    words = ["--epochs", "12", "--seeds", "2", *SMALL, "--out", str(tmp_path / "run")]
    with os.fdopen(writer, "w") as unread, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", unread)
        assert call("train", "treasurehunt", *words) == 0
        assert os.fstat(writer).st_rdev == os.stat(os.devnull).st_rdev  # it was noticed, and written elsewhere
    assert (tmp_path / "run/media/replay.gif").exists()


def test_compare_finds_torch_wherever_it_stands(monkeypatch):
    from xladder.runs import compare

    times = {"fused": 1.0, "torch": 3.0}
    row = {"device": "cpu"}
    monkeypatch.setattr(
        compare, "measure_apart", lambda plan: row | {"rung": plan.rung, "seconds_per_epoch": times[plan.rung]}
    )
    rows = compare.compare("treasurehunt", ["fused", "torch"])["rows"]
    assert [one["speedup"] for one in rows] == [3.0, 1.0]


@pytest.mark.slow
def test_compare_passes_on_what_ended_a_rung(tmp_path, capsys):
    files = ["--chart", str(tmp_path / "c.png"), "--learner.lr", "1e38", "--epochs", "30"]
    assert call("compare", "treasurehunt", "--rungs", "fused", *files, *SMALL) == 4


def test_two_charts_of_one_second_are_two_files(tmp_path):
    charts = [new_file(tmp_path / "compare-cartpole-1.0.png") for _ in range(3)]
    assert [chart.name for chart in charts] == [f"compare-cartpole-1.0{more}.png" for more in ("", "-2", "-3")]
    with pytest.raises(UsageError, match="cannot be written: No such file or directory"):
        new_file(tmp_path / "missing" / "chart.png")


@pytest.mark.parametrize("chart", ["chart.xyz", "."])
def test_a_chart_that_cannot_be_is_refused_before_measuring(chart, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("compare", "treasurehunt", "--chart", chart) == 2


def test_a_terminal_without_greek_is_no_error():
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "xladder.cli.main", "rungs"]
    assert subprocess.run(command, capture_output=True, env=environment).returncode == 0


def test_importing_is_light():
    code = (
        "import sys, time; t = time.perf_counter(); import xladder; t = time.perf_counter() - t;"
        "print(t); assert not {'jax', 'torch', 'flax', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.3


def start_long_run(folder):
    words = [
        "train",
        "treasurehunt",
        "--epochs",
        "1000000",
        "--seeds",
        "2",
        "--ticks-per-row",
        "1",
        "--out",
        str(folder),
        *SMALL,
    ]
    return subprocess.Popen([sys.executable, "-m", "xladder.cli.main", *words], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_signal_stops_cleanly_and_keeps_what_was_done(number, trained, tmp_path):
    process = start_long_run(tmp_path / "run")
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "run/metrics.csv").exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.1)
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert "agents and metrics are kept" in said
    rows = list(csv.DictReader((tmp_path / "run/metrics.csv").open()))
    done = len(rows) // 2
    assert done > 0 and len(rows) == 2 * done
    assert {(int(row["seed"]), int(row["epoch"])) for row in rows} == {(s, e) for s in (0, 1) for e in range(done)}
    assert (tmp_path / "run/checkpoints/agents.safetensors").exists()
    assert call("eval", str(tmp_path / "run"), "--episodes", "2") == 0


def test_a_signal_while_compiling_ends_at_once(tmp_path):
    process = start_long_run(tmp_path / "run")
    try:
        while not (tmp_path / "run/log.txt").exists() or "compiling" not in (tmp_path / "run/log.txt").read_text():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=10)
        assert f"Stopped before anything was trained; to begin: xladder resume {tmp_path / 'run'}" in said
    finally:
        process.kill()
    assert process.returncode == 130


@pytest.mark.parametrize(("number", "seconds"), [(signal.SIGINT, 0.4), (signal.SIGTERM, 0.7)])
def test_a_signal_while_modules_are_imported_ends_at_once(number, seconds, tmp_path):
    code = "import sys; from xladder.cli.main import main; print('begun', flush=True); sys.exit(main())"
    words = [
        sys.executable,
        "-c",
        code,
        "train",
        "hypergrid",
        "--iterations",
        "1000000",
        "--out",
        str(tmp_path / "run"),
    ]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "begun\n"
        time.sleep(seconds)
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert said == ""


def test_main_leaves_the_signals_of_another_program_alone():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert main(["--version"]) == 0
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_output_that_nobody_reads_is_no_error():
    command = f"{sys.executable} -m xladder.cli.main --help | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=os.environ)
    assert "Traceback" not in done.stderr


def test_compare_takes_its_measuring_process_with_it(tmp_path):
    words = [sys.executable, "-m", "xladder.cli.main", "compare", "treasurehunt", "--rungs", "sequential", *SMALL]
    process = subprocess.Popen([*words, "--epochs", "1000000"], cwd=tmp_path, start_new_session=True)

    def family() -> list[str]:
        listed = subprocess.run(["ps", "-o", "pid=", "-s", str(process.pid)], capture_output=True, text=True)
        return listed.stdout.split()

    try:
        deadline = time.monotonic() + 60
        while len(family()) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(family()) == 2
        process.terminate()
        assert process.wait(30) == 143
        assert family() == []
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
