"""The comparison with other libraries: rows at the peer's settings, rows of peers that are missing, columns."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from xladder.plans import plan

HERE = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE / "benchmarks"))
    yield
    for name in (
        "peers",
        "peer_tables",
        "purejax_peer",
        "cleanrl_peer",
        "peer_facts",
        "rounds",
        "hypergrid",
        "treasurehunt",
    ):
        sys.modules.pop(name, None)


def all_rows(folder, device="cpu"):
    import peers

    maker = peers.Rows(device, peers.SIZES["tiny"], folder, 60)
    return [row for case in peers.CASES for row in getattr(maker, case)()]


def test_every_peer_has_a_row_and_a_missing_one_says_how_to_install_it(tmp_path):
    import peers

    rows = all_rows(tmp_path)
    assert {row.peer for row in rows} == {"", *peers.PEERS}
    for row in (row for row in rows if row.peer):
        found = peers.measured(row)
        assert found["error"].startswith("missing (it has no Python): python3.12 -m venv")
        assert f"{tmp_path / row.peer}/bin/pip install" in found["error"]
    assert [row.name for row in rows if not row.peer].count("compiled") == 3  # PQN has no rung in PyTorch


@pytest.mark.parametrize("size", ["gpu", "cpu", "tiny"])
def test_our_rows_are_plans(tmp_path, monkeypatch, size):
    """Whole ticks, known presets, a rung that the workload has."""
    import peers

    given = []
    monkeypatch.setattr(
        peers, "peer_row", lambda name, words, limit: given.append(json.loads(words[2])) or {"error": ""}
    )
    maker = peers.Rows("cpu", peers.SIZES[size], tmp_path, 60)
    rows = [row for case in peers.CASES for row in getattr(maker, case)() if not row.peer]
    for row in rows:
        row.call()
        planned = plan(**given[-1])
        assert len(planned.seeds) == row.seeds
        assert row.length in (getattr(planned.config, name, None) for name in ("steps", "epochs", "iterations"))


def test_a_python_without_the_peer_is_missing_too(tmp_path):
    import peers

    (tmp_path / "py").symlink_to(sys.executable)
    maker = peers.Rows("cpu", peers.SIZES["tiny"], tmp_path, 60)
    assert maker.missing("torchgfn") == "it has no gfn"
    assert maker.missing("purejaxrl") == "there is no purejaxrl/dqn.py"


def test_ours_has_the_settings_of_purejaxrl_and_purejaxql():
    import purejax_peer

    ours, theirs = plan("cartpole", "fused", preset="dqn", protocol="cleanrl").config, purejax_peer.DQN
    assert purejax_peer.settings("dqn", 500_000, "")["EPSILON_ANNEAL_TIME"] == 250_000 == ours.explore_steps
    c = ours.learner
    assert (ours.steps, ours.world.num_envs, c.memory) == (500_000, theirs["NUM_ENVS"], theirs["BUFFER_SIZE"])
    assert (c.batch_size, c.lr, c.gamma) == (theirs["BUFFER_BATCH_SIZE"], theirs["LR"], theirs["GAMMA"])
    assert (c.target_update_period, c.learning_starts) == (theirs["TARGET_UPDATE_INTERVAL"], theirs["LEARNING_STARTS"])
    assert (c.steps_per_update, c.epsilon, c.epsilon_end) == (
        theirs["TRAINING_INTERVAL"],
        1.0,
        theirs["EPSILON_FINISH"],
    )
    assert (c.loss, c.double, c.n_step) == ("squared", False, 1)

    ours, theirs = plan("minatar/breakout", "fused", preset="pqn", protocol="purejaxql").config, purejax_peer.PQN
    c, p = ours.learner, ours.pqn
    assert (ours.world.num_envs, p.rollout, p.minibatches, p.passes) == (
        theirs["NUM_ENVS"],
        theirs["NUM_STEPS"],
        theirs["NUM_MINIBATCHES"],
        theirs["NUM_EPOCHS"],
    )
    assert (p.lambda_, c.lr, c.clip, c.gamma) == (
        theirs["LAMBDA"],
        theirs["LR"],
        theirs["MAX_GRAD_NORM"],
        theirs["GAMMA"],
    )
    assert (c.epsilon_end, c.epsilon_share) == (theirs["EPS_FINISH"], theirs["EPS_DECAY"])


def test_columns_and_ratios():
    import peer_tables
    import peers

    memory = {"peak_memory_mb": 1.0}
    whole_run = {"train_seconds": 2.0, "whole_seconds": 5.0, "compile_seconds": 1.0, "return": 7.0, **memory}
    timed = {"seconds_per_epoch": 0.1, "start_seconds": 3.0, "process_seconds": 99.0, **memory}
    median = {"seconds_per_tick": 0.01, "train_seconds": 1.0, "whole_seconds": 4.0, "return": 7.0, **memory}
    rows = [
        peers.measured(peers.Row("cartpole", "purejaxrl", lambda: whole_run, 100, 4, "purejaxrl")),
        peers.measured(peers.Row("cartpole", "fused", lambda: whole_run | {"train_seconds": 1.0}, 100, 4)),
        peers.measured(peers.Row("treasurehunt", "sorrel on cpu", lambda: timed, 20, 1, "sorrel")),
        peers.measured(peers.Row("treasurehunt", "fused", lambda: median, 20, 2)),
    ]
    assert [row["rate"] for row in rows] == pytest.approx([200.0, 400.0, 10.0, 100.0])
    assert [row["whole_seconds"] for row in rows] == pytest.approx([5.0, 5.0, 3.0 + 20 / 10, 4.0])
    assert [row["score"] for row in rows] == [7.0, 7.0, None, None]
    peer_tables.with_ratios(rows)
    assert "times_best_peer" not in rows[0]
    assert rows[1]["times_best_peer"] == pytest.approx(2.0)
    assert rows[1]["times_best_peer_whole"] == pytest.approx(1.0)
    assert not rows[1]["times_best_peer_whole_estimated"]
    assert peer_tables.cells(rows[2])[:7] == ["sorrel on cpu", "1", "20", "10.0", "", "", "≈ 5.0"]


def test_whole_times_are_compared_at_equal_length():
    """A short row counts as start-up and compilation once, plus the work at its rate."""
    import peer_tables

    def row(name, length, seeds, rate, whole, train, peer=""):
        printed = {"train_seconds": train, "peak_memory_mb": 1.0}
        facts = {"case": "cartpole", "name": name, "peer": peer, "length": length, "seeds": seeds, "score": None}
        times = {"rate": rate, "whole_seconds": whole, "whole_estimated": False, "compile_seconds": 1.0}
        return facts | times | {"printed": printed}

    peer = row("purejaxrl", 1000, 1, 100.0, 15.0, 10.0, "purejaxrl")
    ours = row("fused", 1000, 1, 200.0, 8.0, 5.0)
    short = row("compiled", 100, 1, 50.0, 6.0, 2.0)
    seeds = row("fused", 500, 4, 400.0, 10.0, 5.0)
    slow_peer = row("cleanrl", 100, 1, 10.0, 11.0, 10.0, "cleanrl")
    peer_tables.with_ratios([peer, ours, short, seeds, slow_peer])
    assert ours["times_best_peer_whole"] == pytest.approx(15 / 8)
    assert short["times_best_peer_whole"] == pytest.approx(15 / (6 - 2 + 1000 / 50))
    assert seeds["times_best_peer_whole"] == pytest.approx((15 - 10 + 4000 / 100) / (10 - 5 + 4000 / 400))
    estimated = [peer_tables.cells(r)[7] for r in (ours, short, seeds)]
    assert estimated == ["1.88", "≈ 0.62", "≈ 3.00"]


def test_rows_of_another_run_stay_in_the_file(tmp_path, monkeypatch):
    """Only what was measured again is replaced, and each row says which run it is from."""
    import peers

    monkeypatch.setattr(peers, "measured_on", lambda _: {"device": "d", "command": commands[-1], "git_commit": "c"})
    monkeypatch.setattr(peers.os, "environ", dict(peers.os.environ))
    rates = {"fused": 2.0, "compiled": 1.0}

    def printed(name, *_, **__):
        memory = {"peak_memory_mb": 1.0, "process_seconds": 9.0, "log_z": 1.0, "compile_seconds": 1.0}
        return {"seconds_per_tick": 1 / rates[name], "train_seconds": 1.0, "return": 1.0, **memory}

    monkeypatch.setattr(peers, "peer_row", printed)
    out = tmp_path / "rows.json"
    words = ["peers.py", "--tiny", "--environments", str(tmp_path), "--out", str(out)]
    commands = ["first"]
    monkeypatch.setattr(sys, "argv", [*words, "--cases", "hypergrid,treasurehunt"])
    peers.main()
    rates["fused"] = 4.0
    for more in (["--cases", "hypergrid", "--only", "fused"], ["--seconds", "-1"]):  # then no time is left for any row
        commands.append(more[-1])
        monkeypatch.setattr(sys, "argv", [*words, *more])
        peers.main()
    found = json.loads(out.read_text())["rows"]
    seen = [(r["case"], r["name"], r["seeds"], r.get("rate"), r["command"]) for r in found if not r["peer"]]
    assert [row for row in seen if row[3]] == [
        ("hypergrid", "fused", 1, 4.0, "fused"),
        ("hypergrid", "fused", 2, 4.0, "fused"),
        ("hypergrid", "compiled", 1, 1.0, "first"),
        ("treasurehunt", "fused", 1, 2.0, "first"),
        ("treasurehunt", "fused", 2, 2.0, "first"),
        ("treasurehunt", "compiled", 1, 1.0, "first"),
    ]
    assert {row[4] for row in seen if not row[3]} == {"-1"}


def test_gymnasium_tells_cleanrl_of_ended_episodes_as_it_did_before():
    import gymnasium
    from cleanrl_peer import as_before

    envs = as_before(gymnasium.vector.SyncVectorEnv)(
        [lambda: gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))]
    )
    envs.reset(seed=0)
    length, terminated, infos = 0, [False], {}
    while not terminated[0]:
        assert "final_info" not in infos
        obs, _, terminated, _, infos = envs.step(np.array([1]))
        length += 1
    assert infos["final_info"][0]["episode"]["r"] == length == infos["final_info"][0]["episode"]["l"]
    assert abs(infos["final_observation"][0][2]) > 0.2  # the pole fell
    assert np.abs(obs).max() <= 0.05  # and another episode has begun
