"""Tables in the docs are what the measurements say."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE / "benchmarks"))


def benchmark(name):
    """A file of benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(name, HERE / "benchmarks" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_in_the_docs_is_made_from_the_results():
    table = benchmark("claims").table()
    assert table in (HERE / "docs" / "benchmarks" / "claims.md").read_text()
    # By hand: 0.1829525/0.1206223 and 0.0931142/0.0427745 s on the CPU, 0.0869760/0.0016296 s on the H200.
    assert "| training as one program (`fused`) | 10–100× | treasure hunt | 1.52× / 2.18× | 53× |" in table
    # 1.85077/1.72653 ms and 4.06903/6.50049 ms.
    assert "hypergrid, the step | 1.07× | 0.63× |" in table


def test_peers_on_a_cpu_are_shown_as_measured():
    rows = json.loads((HERE / "benchmarks" / "results" / "peers-cpu.json").read_text())["rows"]
    page = (HERE / "docs" / "benchmarks" / "claims.md").read_text()
    assert f"<!-- peers -->\n{benchmark('peers').markdown(rows)}<!-- end of peers -->" in page


def test_the_long_run_is_shown_as_it_was():
    long_run = benchmark("long_run")
    assert long_run.shown(long_run.PAGE.read_text()) == long_run.table(json.loads(long_run.RESULTS.read_text()))


def test_times_of_large_checkpoints_are_those_measured():
    page = (HERE / "docs" / "explanation" / "checkpoints.md").read_text()
    for row in json.loads((HERE / "benchmarks" / "results" / "large-checkpoints-cpu.json").read_text())["rows"]:
        writes = [row[name]["cpu_seconds"] for name in row if name[:5] in ("first", "secon", "third", "fourt")]
        first, second, third, fourth = (f"{seconds:.1f}" for seconds in writes)
        cells = [f"{first}, {second}", f"{third}, {fourth}", f"{row['read']['cpu_seconds']:.1f}"]
        assert f"| {row['megabytes']:,.0f} MB | {' | '.join(cells)} |" in page


def test_the_tables_of_defaults_are_made_from_the_results():
    """And the seeds that choose are not those that are reported."""
    defaults = benchmark("defaults")
    assert defaults.tables() in defaults.DOCS.read_text()
    for what, first in {"choose": 1000, "report": 2000}.items():
        assert all(row["seeds"][0] == first and row["seeds"][1] < first + 1000 for row in defaults.kept(what)[0])


def test_what_bfloat16_does_to_learning_is_shown_as_measured(tmp_path, monkeypatch):
    learning = benchmark("learning")
    assert f"{learning.MARKS[0]}\n{learning.table()}{learning.MARKS[1]}" in learning.PAGE.read_text()
    rows = {"seeds": 2, "epochs": 20, "greedy": 5.0, "greedy_ci95": 1.0}
    tenths = [[1.0, 3.0]] * 10
    both = {"float32": rows | {"tenths": tenths}, "bfloat16": rows | {"tenths": [[0.0, 2.0]] * 10}}
    monkeypatch.setattr(learning, "PRECISION", tmp_path / "measured.json")
    learning.PRECISION.write_text(json.dumps({"precisions": both, "command": "c", "device": "d"}))
    # By hand: two seeds, 1 and 3; a half width of 12.7 standard errors, which are 1.
    assert "| 2 to 4 | 2.0 ± 12.7 | 1.0 ± 12.7 | −1.0 ± 0.0 |" in learning.table()


def test_candidates_for_defaults_race_side_by_side_and_are_kept(tmp_path, monkeypatch):
    defaults = benchmark("defaults")
    names = [job.name for job in defaults.candidates("cartpole")]
    assert len(set(names)) == 24 and sum("huber, copied target" in name for name in names) == 4

    def trained(name, command, limit, **variables):
        given = dict(zip(command[3::2], command[4::2], strict=True))
        name = name.removeprefix("cartpole, ")
        assert (
            given["--row"] == f"cartpole, {name}"
            and limit == 9
            and variables == {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        )
        asked.append(name)
        if name in broken:
            return {"name": name, "error": "stopped after 9 s"}
        one = {"world": "cartpole", "name": name, "steps": 400, "seeds": [1000, 1001], "per_seed": [1.0, 2.0]}
        score = {"mean": 1.5, "ci95": 0.1, "worst": 1.0, "random": 0.0, "seconds": 3.0}
        return {"process_seconds": 4.0, "row": one | score, "facts": {"device": "cpu", "command": "child"}}

    monkeypatch.setattr(sys.modules["side_by_side"], "peer_row", trained)
    out = tmp_path / "out.json"
    words = ["defaults.py", "choose", "--steps", "400", "--seeds", "2", "--workers", "3", "--row-seconds", "9"]
    monkeypatch.setattr(sys, "argv", [*words, "--out", str(out)])
    for broken, expected in ((names[5:7], names), ((), names[5:7]), ((), [])):
        asked = []
        defaults.main()
        assert sorted(asked) == sorted(expected)
        content = json.loads(out.read_text())
        assert len(content["rows"]) == 24 - len(broken) and len(content["left_out"]) == len(broken)
    assert content["device"] == "cpu" and "defaults.py choose" in content["command"]
    assert defaults.missing("choose", content["rows"][1:]).startswith(
        "Rows measured: 23 of 24. Missing are: cartpole: "
    )


@pytest.mark.parametrize("name", ["presets_learn", "vdn"])
def test_tables_are_made_from_the_results(name):
    script = benchmark(name)
    assert f"{script.MARKS[0]}\n{script.tables()}{script.MARKS[1]}" in script.DOCS.read_text()


def test_learners_of_a_team_have_as_many_env_steps_and_updates():
    vdn = benchmark("vdn")
    team, alone = (vdn.settings(vdn.Job("jaxmarl/MPE_simple_spread_v3", n), 20_800) for n in ("vdn", "iql, shared"))
    assert vdn.Job("jaxmarl/MPE_simple_spread_v3", "vdn").protocol == "jaxmarl"
    assert alone.steps == 3 * team.steps == 62_400  # three agents
    assert team.steps // team.learner.steps_per_update == alone.steps // alone.learner.steps_per_update == 100


def test_presets_are_trained_side_by_side_and_kept(tmp_path, monkeypatch):
    """Rows that are there are not trained again; the published agents begin first."""
    learn = benchmark("presets_learn")
    asked, broken = [], "cartpole, c51/cleanrl"

    def trained(name, command, limit, **variables):
        words = command[2:]
        assert words[words.index("--row") + 1] == name and words[:2] == ["--worlds", "cartpole"]
        assert variables == {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        asked.append(name)
        if name == broken:
            return {"name": name, "error": "stopped after 9 s"}
        job = next(job for job in learn.jobs_of("cartpole", 0.1) if job.name == name)
        one = {"world": "cartpole", "preset": job.preset, "protocol": job.protocol, "steps": job.steps, "seeds": 2}
        row = one | {"per_seed": [470.0, 480.0], "mean": 475.0, "ci95": 63.5, "worst": 470.0, "random": 20.0}
        row |= {"solved": 1, "learned": name != "cartpole, explore", "seconds": 3.0}
        return {"process_seconds": 4.0, "row": row, "facts": {"device": "cpu", "command": "child"}}

    monkeypatch.setattr(sys.modules["side_by_side"], "peer_row", trained)
    monkeypatch.setattr(sys.modules["side_by_side"], "RESULTS", tmp_path)
    out = tmp_path / "presets-learn-cpu.json"
    words = ["presets_learn.py", "--worlds", "cartpole", "--seeds", "2", "--scale", "0.1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    learn.main()
    rows = [job.name for job in learn.jobs_of("cartpole")]
    assert sorted(asked) == sorted(rows) and {name.split("/")[1] for name in asked[:4]} == {"cleanrl", "purejaxql"}
    asked.clear()
    learn.main()
    assert asked == [broken] == [line.split(":")[0] for line in json.loads(out.read_text())["left_out"]]
    assert f"; {broken};" in learn.missing(json.loads(out.read_text())["rows"])
    shown = "475.00 ± 63.50, 1 of 2 at 475 or more"
    assert f"| cartpole | dqn, `cleanrl` | 50,000 | {shown} | 470.00 | 20.00 |" in learn.tables()
    assert f"| cartpole | explore | 10,000 | {shown}, **not above random play** | 470.00 |" in learn.tables()


def result(name):
    """A committed result."""
    return json.loads((HERE / "benchmarks" / "results" / f"{name}.json").read_text())


def test_the_readme_says_how_fast_it_was():
    page = (HERE / "README.md").read_text()
    ms = {(row["case"], row["rung"]): row["ms"] for row in result("strongest-torch-gpu")["rows"]}
    hunt = {
        (row["name"], row["observe"]): 1000 * row["seconds_per_epoch"] for row in result("treasurehunt-gpu")["rows"]
    }
    grid = {
        (row["name"], row.get("seeds")): 1000 / row["iterations_per_second"]
        for row in result("flow-speed-gpu")["rows"]
        if row["world"] == "hypergrid"
    }

    rows = {}
    for case, digits in {"treasurehunt-256": 1, "hypergrid-20^4": 2, "cartpole": 2}.items():
        best, fused = min(ms[case, "torch"], ms[case, "compiled"]), ms[case, "fused"]
        times = f"{best / fused:.1f}" if best < 10 * fused else f"{best / fused:.0f}"
        rows[case] = f"{best:.1f} | {fused:.{digits}f} | {times} |"
    sorrel, many = hunt["sorrel on cuda", "in_turn"], hunt["fused on gpu, 512 seeds", "together"]
    assert f"| sorrel {sorrel:.0f}, in turn | {rows['treasurehunt-256']} 512 seeds: {many:.2f} |" in page
    gfnx, many = grid["gfnx", None], grid["fused", 64]
    assert f"| gfnx {gfnx:.1f} | {rows['hypergrid-20^4']} 64 seeds: {many:.3f} |" in page
    assert f"| CartPole, DQN, ms per tick | | {rows['cartpole']} |" in page
    assert f"takes `fused` {hunt['fused on gpu', 'in_turn']:.1f} ms" in page


def test_the_readme_says_how_much_the_same_it_is():
    page = (HERE / "README.md").read_text()
    sameness = (HERE / "docs" / "explanation" / "sameness.md").read_text()
    levels = dict(re.findall(r"^\| ([a-z ]+) \| (\S+) \| \S+ \|$", sameness, re.MULTILINE))
    tolerances = dict(re.findall(r"^\| ([a-z ]+) \| \S+ \| (\S+) \|$", sameness, re.MULTILINE))
    shown = "; ".join(short(levels[level]) for level in ("forward", "loss", "gradients"))
    allowed = "; ".join(short(tolerances[level]) for level in ("forward", "loss", "gradients"))
    assert f"| network outputs; loss; gradients | {shown} | {allowed} |" in page
    [entry] = [entry for entry in result("sorrel-learning")["entries"] if entry["world"] == "treasurehunt"]
    ends = [" ± ".join(f"{x:.1f}" for x in entry["summary"][name]["last_tenth"]) for name in ("fused", "sorrel")]
    assert f"`fused` and sorrel 1.6.0 | {', '.join(ends)} |" in page


def short(number):
    """A small number with one digit: 8.2e-07 is 8e-7."""
    return re.sub(r"e-0?", "e-", f"{float(number):.0e}")


def test_the_picture_of_the_ladder_is_described_as_it_is():
    described = f"![{benchmark('ladder_picture').in_words()}]"
    assert described in (HERE / "README.md").read_text()
    assert described in (HERE / "docs" / "index.md").read_text()


SCRIPTS = {path.stem: path.read_text() for path in sorted((HERE / "benchmarks").glob("*.py"))}
NO_RESULTS = {"pictures"}  # its file says what each picture shows


@pytest.mark.parametrize("name", sorted(set(SCRIPTS) - NO_RESULTS))
def test_results_say_what_measured_them(name):
    """Device, versions, commit and command come from one function; a peer's rows go into the file of who starts it."""
    text = SCRIPTS[name]
    writes = "write_json(" in text or ("json.dumps(" in text and ".write_text(" in text)
    others = "".join(other for stem, other in SCRIPTS.items() if stem != name)
    prints = "print(json.dumps(" in text and not name.endswith("_peer") and f"{name}.py" not in others
    assert "measured_on(" in text or not (writes or prints)
    assert name == "rounds" or "import environment" not in text


def test_what_measured_is_written_down(monkeypatch):
    import jax

    monkeypatch.setattr(sys, "argv", ["benchmarks/some.py", "--out", "/a/folder/some.json"])
    found = benchmark("rounds").measured_on(jax.devices("cpu")[0])
    assert found["command"] == "python benchmarks/some.py --out some.json"
    assert {"device", "processor", "cores", "python", "versions", "git_commit"} <= set(found)


def test_floors_are_shown_as_measured_and_none_is_missed_quietly(tmp_path, monkeypatch):
    floors = benchmark("floors")
    page = floors.PAGE.read_text()
    assert floors.filled(page) == page
    missed = [goal for goal in (*floors.GPU, *floors.CPU) if goal.cells()[-1] == "missed"]
    assert all(goal.limit for goal in missed), [goal.what for goal in missed if not goal.limit]
    monkeypatch.setattr(floors, "RESULTS", tmp_path)
    assert {goal.cells()[3] for goal in (*floors.GPU, *floors.CPU)} == {"not measured"}
    # By hand: 300/60 against PyTorch, 300/100 against the peer.
    row = {"case": "treasurehunt", "peer": "", "seeds": 1, "length": 1000, "score": None, "whole_estimated": False}
    row |= {"compile_seconds": 1.0, "printed": {"train_seconds": 4.0, "peak_memory_mb": 1.0}}
    rows = [
        row | {"name": "fused", "rate": 300.0, "whole_seconds": 9.0},
        row | {"name": "compiled", "rate": 60.0, "whole_seconds": 9.0, "length": 100},
        row | {"name": "sorrel on cuda", "peer": "sorrel", "rate": 100.0, "whole_seconds": 20.0},
    ]
    facts = {"rows": rows, "command": "c", "device": "d", "git_commit": "0123456789"}
    (tmp_path / "peers-gpu.json").write_text(json.dumps(facts))
    found = {goal.what: goal.cells() for goal in floors.GPU}
    assert found["treasure hunt, `fused` against `compiled` PyTorch"][1:] == (
        "≥ 6.00×",
        "≥ 9.00×",
        "**5.00×**",
        "missed",
    )
    assert "| `fused` | 1 | 1,000 epochs | 300 | 3.00 |" in floors.peers()
    assert f"{floors.HUNT_GPU}\n" in floors.table(floors.GPU)
    assert "`c` (d, commit 0123456)" in floors.sources()
