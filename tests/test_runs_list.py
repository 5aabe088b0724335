"""`xladder runs` and `xladder rm`, and the names and tags of runs: with directories made up file by file."""

import json
import os
import subprocess
import sys
import time

import pytest

import xladder
from tests.conftest import TINY_GRID
from xladder.cli import rm
from xladder.cli.main import main
from xladder.errors import UsageError
from xladder.runs.directory import Keeping, read_keeping
from xladder.runs.listing import list_runs, read_info
from xladder.runs.locks import Lock, is_held

TOO_LARGE_TO_ADD = "seed,tick,steps,return,episodes,seconds\r\n0,0,1,1e308,1,1\r\n0,1,2,1e308,1,2\r\n"
HOSTILE = "\x1b[31m[bold]red[/bold]\x9b2J"


def write_run(folder, state="finished", rows=3, evaluation=None, tags=(), started="2026-01-02 03:04:05", **config):
    """A run directory with these files in it, and only these."""
    folder.mkdir(parents=True)
    data = {"workload": "cartpole", "rung": "fused", "seed": 0, "seeds": 1, "config": {"learner": {"lr": 0.1}}}
    (folder / "config.json").write_text(json.dumps(data | {"run": {"keep": 2, "tags": list(tags)}} | config))
    lines = ["seed,tick,steps,return,episodes,seconds", *(f"0,{t},{t + 1},{t * 10},{t},{t / 2}" for t in range(rows))]
    (folder / "metrics.csv").write_text("\r\n".join(lines) + "\r\n")
    (folder / "log.txt").write_text(f"{started} cartpole on fused\n")
    (folder / "lock").write_text("process 1\n")
    for name in ("checkpoints", "media"):
        (folder / name).mkdir()
    if state in ("finished", "diverged"):
        (folder / f"{state}.json").write_text("{}")
    if evaluation:
        (folder / "timings.json").write_text(json.dumps({"evaluation": evaluation}))
    return folder


def said(words, capsys):
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


def listed(folder, **filters):
    return [run.name for run in list_runs(folder, **filters)]


# What a listing says


def test_newest_or_best_first_with_the_evaluated_return_before_the_recent_one(tmp_path):
    write_run(tmp_path / "old", evaluation={"mean_return": 500.0, "ci95": 3.0})
    write_run(tmp_path / "new", started="2026-02-02 03:04:05")
    write_run(tmp_path / "empty", rows=0, started="2026-01-20 03:04:05")
    assert listed(tmp_path) == ["new", "empty", "old"]
    assert listed(tmp_path, sort="return") == ["old", "new", "empty"]
    assert listed(tmp_path, sort="name") == ["empty", "new", "old"]
    old, new = read_info(tmp_path / "old"), read_info(tmp_path / "new")
    assert (old.score, old.interval) == (500.0, 3.0)
    # Of ticks 0, 1, 2 with 0, 1, 2 episodes and returns of 0, 10, 20.
    assert new.score == pytest.approx(50 / 3) and new.steps == 3 and new.seconds == 1.0


def test_states_and_filters(tmp_path):
    for state in ("finished", "diverged", "stopped"):
        write_run(tmp_path / state, state, tags=["a", state])
    write_run(tmp_path / "other", workload="acrobot", rung="torch")
    lock = Lock(write_run(tmp_path / "running", "finished") / "lock")
    assert {run.name: run.state for run in list_runs(tmp_path)} == {
        "finished": "finished",
        "diverged": "diverged",
        "stopped": "stopped",
        "running": "running",
        "other": "finished",
    }
    lock.release()
    assert read_info(tmp_path / "running").state == "finished"
    assert listed(tmp_path, state="diverged") == ["diverged"]
    assert listed(tmp_path, workload="acrobot") == listed(tmp_path, rung="torch") == ["other"]
    assert set(listed(tmp_path, tags=["a"])) == {"finished", "diverged", "stopped"}
    assert listed(tmp_path, tags=["a", "stopped"]) == ["stopped"]


def test_looking_at_a_lock_does_not_disturb_whoever_takes_it(tmp_path):
    """A listing holds a free lock for an instant; a run that starts just then has to get it all the same."""
    file = tmp_path / "lock"
    Lock(file).release()
    script = (
        f"from xladder.runs.locks import is_held\nfrom pathlib import Path\nwhile True: is_held(Path({str(file)!r}))"
    )
    looking = subprocess.Popen([sys.executable, "-c", script])
    try:
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            Lock(file).release()
    finally:
        looking.kill()
        looking.wait()
    before = file.read_text()
    assert not is_held(file) and file.read_text() == before


def test_runs_are_found_in_folders_and_a_single_one_by_itself(tmp_path):
    write_run(tmp_path / "sweep" / "lr" / "one")
    write_run(tmp_path / "two")
    (tmp_path / "notes").mkdir()
    assert set(listed(tmp_path)) == {"sweep/lr/one", "two"}
    assert listed(tmp_path / "two") == ["two"]


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("config.json", "{", "config.json is not valid JSON"),
        ("config.json", "[]", "not a JSON object"),
        ("config.json", '{"workload": "x"}', "it needs workload, rung, seed, config and seeds"),
        ("config.json", "[" * 100_000, "config.json is not valid JSON"),
        ("config.json", None, "config.json is missing"),
        ("metrics.csv", "seed,tick\r\n0,0\r\n", "metrics.csv is not a table"),
        ("metrics.csv", "seed,tick,steps,seconds\r\n0,0,nan,1\r\n", "metrics.csv is not a table"),
        ("metrics.csv", TOO_LARGE_TO_ADD, "metrics.csv is not a table"),
    ],
)
def test_a_damaged_directory_is_a_row_that_says_so(tmp_path, capsys, file, text, words):
    write_run(tmp_path / "good")
    bad = write_run(tmp_path / "bad")
    (bad / file).unlink()
    if text is not None:
        (bad / file).write_text(text)
    code, out, err = said(["runs", tmp_path], capsys)
    assert code == 0 and not err
    assert "bad: " in out and words in out and "damaged" in out
    assert "finished" in out
    assert listed(tmp_path, state="damaged") == ["bad"]


def test_a_finished_run_whose_table_was_cut_is_damaged(tmp_path):
    for name, rows in (("whole", 3), ("cut", 2), ("none", 0)):
        run = write_run(tmp_path / name, rows=rows)
        (run / "finished.json").write_text(json.dumps({"ticks": 3, "seeds": 1}))
    (tmp_path / "none/metrics.csv").write_bytes(bytes(500))
    assert listed(tmp_path, state="damaged", sort="name") == ["cut", "none"]


def test_gflownets_are_ranked_by_total_variation(tmp_path, capsys):
    for name, tv, reward in (("collapsed", 0.9, 5.0), ("good", 0.1, 2.0)):
        score = {"tv": tv, "mean_return": reward, "ci95": 0.1}
        write_run(tmp_path / name, workload="hypergrid", config={"iterations": 3}, evaluation=score)
    assert listed(tmp_path, sort="return") == ["good", "collapsed"]
    assert "tv 0.100" in said(["runs", tmp_path], capsys)[1]


def test_an_empty_argument_is_not_the_same_as_none(capsys):
    assert said(["runs", ""], capsys) == (2, "", "xladder: An argument is empty: `xladder runs ''`.\n")


def test_a_table_that_is_being_written_ends_with_half_a_line(tmp_path):
    run = write_run(tmp_path / "one")
    with (run / "metrics.csv").open("a") as file:
        file.write("0,3,4,99")
    assert read_info(run).steps == 3 and read_info(run).state == "finished"


def test_only_the_end_of_a_long_table_is_read(tmp_path):
    run = write_run(tmp_path / "one", rows=50_000)
    assert (run / "metrics.csv").stat().st_size > 1_000_000
    info = read_info(run)
    assert info.steps == 50_000 and info.score > 499_000


def test_links_and_pipes_are_not_followed(tmp_path):
    secret = write_run(tmp_path / "elsewhere", workload="secret")
    folder = tmp_path / "runs"
    run = write_run(folder / "one")
    (folder / "link").symlink_to(secret)
    for name in ("config.json", "metrics.csv", "timings.json", "log.txt", "lock"):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(secret / name)
    assert listed(folder) == ["one"]
    info = read_info(run)
    assert info.state == "damaged" and info.problem == "config.json is a link" and not info.workload
    (run / "config.json").unlink()
    os.mkfifo(run / "config.json")
    assert read_info(run).problem == "config.json is not a file"


def test_hostile_names_are_shown_as_text(tmp_path, capsys):
    write_run(tmp_path / HOSTILE.replace("/", "|"), workload=HOSTILE, rung=HOSTILE, tags=[HOSTILE])
    code, out, err = said(["runs", tmp_path], capsys)
    assert code == 0 and "[bold]red" in out and not set(out + err) & {"\x1b", "\x9b"}
    code, out, _ = said(["runs", tmp_path, "--json", "-"], capsys)
    assert "\x9b" not in out and "\x1b" not in out
    assert json.loads(out)["runs"][0]["tags"] == [HOSTILE]
    (run,) = tmp_path.iterdir()
    (run / "media" / HOSTILE.replace("/", "|")).symlink_to(tmp_path)
    code, out, err = said(["rm", run, "--yes"], capsys)
    assert code == 2 and "is a link" in err and not set(out + err) & {"\x1b", "\x9b"}


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_table_fits_the_terminal_and_keeps_the_names_whole(tmp_path, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    names = [f"treasurehunt-sequential-20260102-0304{i:02}" for i in range(3)]
    for name in names:
        write_run(tmp_path / name, workload="treasurehunt", rung="sequential", evaluation={"mean_return": 1.0})
    _, out, _ = said(["runs", tmp_path], capsys)
    lines = out.splitlines()
    assert max(map(len, lines)) <= columns
    assert sum(line.startswith(tuple(names)) for line in lines) == 3
    assert all("finished" in line for line in lines[2:])
    assert ("steps" in lines[0]) == (columns == 200)


def test_bad_folders_end_with_a_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    assert said(["runs", tmp_path / "none"], capsys) == (2, "", f"xladder: There is no folder `{tmp_path}/none`.\n")
    assert "There are no runs in" in said(["runs", tmp_path / "empty"], capsys)[2]
    assert "cannot be read: Not a directory" in said(["runs", tmp_path / "file"], capsys)[2]
    write_run(tmp_path / "one")
    code, out, _ = said(["runs", tmp_path, "--rung", "torch"], capsys)
    assert code == 0 and "matches" in out


def test_a_thousand_runs_are_listed_within_seconds_without_jax(tmp_path):
    for i in range(1000):
        write_run(tmp_path / f"run-{i}", rows=200, evaluation={"mean_return": float(i), "ci95": 1.0})
    script = (
        "import sys, time; begin = time.process_time()\nfrom xladder.cli.main import main\n"
        f"code = main(['runs', {str(tmp_path)!r}, '--sort', 'return'])\n"
        "print(code, time.process_time() - begin, {'jax', 'torch', 'flax', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *table, last = done.stdout.splitlines()
    code, seconds, heavy = last.split(maxsplit=2)
    assert code == "0" and heavy == "set()" and len(table) == 1002 and table[2].startswith("run-999")
    assert float(seconds) < 6  # two on a core of its own, three and more on one that is shared


# Removing


def test_rm_asks_and_removes_only_what_it_named(tmp_path, capsys, monkeypatch):
    keep, gone = write_run(tmp_path / "keep"), write_run(tmp_path / "gone")
    monkeypatch.setattr(rm.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: "n")
    assert said(["rm", gone], capsys)[0] == 1 and gone.exists()
    asked, size = [], sum(file.stat().st_size for file in gone.iterdir() if file.is_file())
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "y")
    code, out, _ = said(["rm", gone, gone], capsys)
    assert code == 0 and not gone.exists() and keep.exists()
    assert asked == [f"Remove 1 run, {size} bytes? [y/N] "] and f"cartpole on fused, finished, {size} bytes" in out


def test_rm_without_a_terminal_needs_yes(tmp_path, capsys, monkeypatch):
    run = write_run(tmp_path / "run")
    monkeypatch.setattr(rm.sys.stdin, "isatty", lambda: False, raising=False)
    code, _, err = said(["rm", run], capsys)
    assert code == 2 and "needs `--yes`" in err and run.exists()
    assert said(["rm", run, "--yes"], capsys)[0] == 0 and not run.exists()


def test_rm_refuses_everything_before_it_removes_anything(tmp_path, capsys):
    good = write_run(tmp_path / "runs" / "good")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    (tmp_path / "link").symlink_to(good)
    linked = write_run(tmp_path / "linked")
    (linked / "media" / "video").symlink_to(tmp_path / "folder")
    outer = write_run(tmp_path / "outer")
    write_run(outer / "media" / "inner")
    busy = write_run(tmp_path / "busy")
    lock = Lock(busy / "lock")
    for path, words in {
        tmp_path / "nothing": "There is no folder",
        tmp_path / "folder": "is not a run directory",
        tmp_path / "folder" / "notes.txt": "is a file, not a run directory",
        tmp_path / "runs": "is not a run directory",
        tmp_path / "link": "is a link",
        linked: "is a link, and a run writes none",
        outer: "has another run in it",
        busy: "is being written by a run",
    }.items():
        code, _, err = said(["rm", good, path, "--yes"], capsys)
        assert code == 2 and words in err and good.exists(), path
    lock.release()
    assert (tmp_path / "folder" / "notes.txt").exists() and busy.exists() and linked.exists()


def test_rm_removes_a_damaged_run_and_what_an_interrupted_removal_left(tmp_path, capsys):
    damaged, left = write_run(tmp_path / "damaged"), tmp_path / "left"
    (damaged / "config.json").write_text("{")
    left.mkdir()
    (left / "lock").write_text("")
    assert said(["rm", damaged, left, "--yes"], capsys)[0] == 0
    assert not damaged.exists() and not left.exists()


# Names and tags


@pytest.mark.slow
def test_a_run_has_its_name_and_tags_and_the_next_one_does_not_inherit_them(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny = ["--iterations", "2", "--world.side", "4", "--learner.width", "8", "--learner.batch-size", "4"]
    quick = ["--eval-episodes", "0", "--checkpoint-every", "0"]
    words = ["train", "hypergrid", *tiny, *quick]
    assert said([*words, "--name", "first", "--tag", "a,b", "--tag", "c"], capsys)[0] == 0
    assert read_keeping(tmp_path / "runs/first/config.json").tags == ("a", "b", "c")
    info = read_info(tmp_path / "runs/first")
    assert info.tags == ("a", "b", "c") and info.state == "finished" and info.workload == "hypergrid"
    again = ["train", "hypergrid", "--config", "runs/first/config.json", "--name", "second"]
    assert said(again, capsys)[0] == 0
    assert read_info(tmp_path / "runs/second").tags == ()
    code, _, err = said([*words, "--name", "first"], capsys)
    assert code == 2 and "`runs/first` is there already: choose another `--name`" in err
    code, out, _ = said(["runs", "--tag", "b"], capsys)
    assert code == 0 and "first" in out and "second" not in out


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "../x", "a b", "é", "x\n", "a" * 101])
def test_names_that_are_not_names_are_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="a name has up to 100 of the characters"):
        xladder.train("hypergrid", config=TINY_GRID, name=name)
    assert not list(tmp_path.iterdir())


def test_name_and_tags_from_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given, words in {
        "both": ({"name": "x", "out": "y"}, "`name` and `out` both"),
        "tag": ({"out": "y", "tags": ["a b"]}, "`tags` is a b, but a tag is made of"),
        "text": ({"out": "y", "tags": "ab"}, "it has to be a list"),
        "nowhere": ({"tags": ["a"]}, "`tags` needs `out`"),
    }.values():
        with pytest.raises(UsageError, match=words):
            xladder.train("hypergrid", config=TINY_GRID, **given)
    assert not list(tmp_path.iterdir())


def test_a_config_from_before_there_were_tags_still_loads(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"run": {"keep": 3}}))
    assert read_keeping(file) == Keeping(keep=3)
    file.write_text(json.dumps({"run": {"keep": 3, "tags": "ab"}}))
    with pytest.raises(UsageError, match="was not written by xladder"):
        read_keeping(file)
