"""Networks out of runs and into runs, through files; and files that should not be let in."""

import io
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from dataclasses import replace

import jax
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from torch import nn

import xladder
from tests import fresh_runs
from tests.conftest import TINY, TINY_ATARI, TINY_CART, TINY_GRID, assert_trees_equal
from xladder import parameters
from xladder.cli.main import main
from xladder.families.multi_agent import tag_presets
from xladder.families.multi_agent.program import Program
from xladder.families.value import presets as named
from xladder.parity.levels import Level
from xladder.registry import RUNGS
from xladder.runs import exchange, loading, nets, start_files, state_files
from xladder.runs.starting import find_beginning

CONFIGS = {"treasurehunt": TINY, "hypergrid": TINY_GRID, "cartpole": TINY_CART}
FORMS = {"torch": "pt", "safetensors": "safetensors"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Name of a workload → its run directory; the treasure hunt has two seeds of two agents."""
    folder = tmp_path_factory.mktemp("runs")
    for name, config in CONFIGS.items():
        fresh_runs.make(folder / name, name, config, seeds=1 + (name == "treasurehunt"), seed=3)
    return {name: folder / name for name in CONFIGS}


@pytest.fixture(scope="module")
def files(runs, tmp_path_factory):
    """(workload, form) → all its networks, exported."""
    folder, made = tmp_path_factory.mktemp("files"), {}
    for name, run in runs.items():
        for form, ending in FORMS.items():
            made[name, form] = folder / f"{name}.{ending}"
            assert main(["export", str(run), "--to", form, "--out", str(made[name, form])]) == 0
    assert len(list(folder.iterdir())) == len(made)  # no drafts are left
    return made


@pytest.fixture(scope="module")
def one(runs, tmp_path_factory):
    """One hunter's network under sorrel's names."""
    path = tmp_path_factory.mktemp("one") / "net.pt"
    words = ["export", str(runs["treasurehunt"]), "--to", "torch", "--out", str(path), "--seed", "4", "--agent", "1"]
    assert main(words) == 0
    return path


def bring(file, run, out, *more, files=()):
    """`xladder import` with the settings of a run."""
    workload = json.loads((run / "config.json").read_text())["workload"]
    given = ["import", *map(str, (file, *files)), "--workload", workload]
    return main([*given, "--config", str(run / "config.json"), "--out", str(out), *more])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("workload", CONFIGS)
def test_what_goes_out_comes_back_with_every_bit(workload, form, runs, files, tmp_path):
    assert bring(files[workload, form], runs[workload], tmp_path / "run") == 0
    returned, original = loading.load(tmp_path / "run"), loading.load(runs[workload])
    assert_trees_equal(returned.params, original.params)
    assert returned.plan == original.plan


def test_both_forms_hold_the_same_names_and_numbers(files):
    for workload in CONFIGS:
        ours, theirs = torch.load(files[workload, "torch"]), load_file(files[workload, "safetensors"])
        assert set(ours) == set(theirs)
        assert all(np.array_equal(ours[name].numpy(), theirs[name]) for name in ours)
        assert all(name.startswith("seed") == (workload == "treasurehunt") for name in ours)


@pytest.mark.slow
def test_an_export_says_how_far_both_sides_are_apart_and_an_imported_run_is_played_with(one, runs, tmp_path, capsys):
    out = tmp_path / "net.safetensors"
    assert main(["export", str(runs["treasurehunt"]), "--to", "safetensors", "--out", str(out), "--seed", "3"]) == 0
    said = capsys.readouterr().out
    assert "2 networks under `seed3.agent0.`" in said and "largest difference" in said and "allowed" in said
    assert bring(one, runs["treasurehunt"], tmp_path / "run", "--seed", "7") == 0
    assert "all 2 agents use it" in capsys.readouterr().out
    assert main(["eval", str(tmp_path / "run"), "--episodes", "2"]) == 0
    found, original = loading.load(tmp_path / "run"), loading.load(runs["treasurehunt"])
    assert found.plan.seeds == (7,)
    for agent in (0, 1):
        assert_trees_equal(nets.take(found, (7, agent)), nets.take(original, (4, 1)))


class Noisy(nn.Linear):
    """A layer with the entries that sorrel's noisy ones have in a state_dict."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.sigma_weight = nn.Parameter(torch.rand(outputs, inputs))
        self.sigma_bias = nn.Parameter(torch.rand(outputs))
        self.register_buffer("epsilon_weight", torch.randn(outputs, inputs))
        self.register_buffer("epsilon_bias", torch.randn(outputs))


class Sorrel(nn.Module):
    """The modules of sorrel's IQN, under its names."""

    def __init__(self):
        super().__init__()
        learner, width = Program(TINY).learner, TINY.learner.width
        self.head1 = nn.Linear(TINY.learner.n_frames * learner.encoding.num_inputs, width)
        self.cos_embedding = nn.Linear(TINY.learner.cosines, width)
        self.ff_1, self.advantage, self.value = Noisy(width, width), Noisy(width, learner.actions), Noisy(width, 1)


def test_sorrels_class_takes_what_is_exported(one):
    Sorrel().load_state_dict(torch.load(one))  # strict: its noise too has to be there


@pytest.mark.parametrize("whole", [False, True])
def test_sorrels_state_dicts_and_files_are_taken(whole, runs, tmp_path):
    net, target = Sorrel(), Sorrel()
    optimiser = torch.optim.Adam(net.parameters())
    sum(parameter.sum() for parameter in net.parameters()).backward()
    optimiser.step()
    content = {"local": net.state_dict(), "target": target.state_dict(), "optim": optimiser.state_dict()}
    torch.save(content if whole else content["local"], tmp_path / "sorrel.pkl")
    assert bring(tmp_path / "sorrel.pkl", runs["treasurehunt"], tmp_path / "run") == 0
    found = nets.take(loading.load(tmp_path / "run"), (3, 1))
    state = {name: values.numpy() for name, values in net.state_dict().items()}
    assert_trees_equal(found, parameters.to_tree("iqn", state))


SMALL = {"width": 16, "memory": 64, "batch_size": 8}
MEMBERS = {
    "rainbow": lambda: ("cartpole", named.presets("cartpole")["rainbow"], {"hidden": (16,)}),
    "iqn": lambda: ("cartpole", named.presets("cartpole")["iqn"], {"hidden": (16,)}),
    "minatar, qrdqn": lambda: ("minatar/breakout", named.presets("minatar/breakout")["qrdqn"], {}),
    "atari, dueling": lambda: ("atari/breakout", TINY_ATARI, {"dueling": True, "precision": "bfloat16"}),
    "tag": lambda: ("tag", tag_presets.DEFAULT, {"cosines": 8, "precision": "bfloat16"}),
    "flows, separate": lambda: ("hypergrid", replace(TINY_GRID, loss="subtb"), {"trunk": "separate", "layers": 3}),
}


@pytest.mark.slow
@pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS.keys())
def test_every_kind_of_network_goes_out_and_comes_back(member, tmp_path):
    workload, config, changes = member()
    small = {name: size for name, size in SMALL.items() if workload != "hypergrid"}
    config = replace(config, learner=replace(config.learner, **small, **changes))
    result = fresh_runs.make(tmp_path / "run", workload, config)
    assert main(["export", str(tmp_path / "run"), "--to", "torch", "--out", str(tmp_path / "net")]) == 0
    assert bring(tmp_path / "net", tmp_path / "run", tmp_path / "again") == 0
    assert_trees_equal(loading.load(tmp_path / "again").params, result.params)


def test_pqn_has_no_twin(tmp_path, capsys):
    config = named.presets("cartpole")["pqn"]
    fresh_runs.make(tmp_path / "run", "cartpole", config)
    assert main(["export", str(tmp_path / "run"), "--to", "torch", "--out", str(tmp_path / "net.pt")]) == 2
    assert "no twin in PyTorch" in capsys.readouterr().err


def test_nothing_is_left_where_the_two_sides_differ(runs, tmp_path, capsys, monkeypatch):
    from xladder.families.gflownet import parity as hypergrid

    monkeypatch.setattr(hypergrid, "forward", lambda *given: Level("forward", 0.5, 1e-5, passed=False))
    out = tmp_path / "net.pt"
    assert main(["export", str(runs["hypergrid"]), "--to", "torch", "--out", str(out)]) == 1
    assert "differ by 5.0e-01, and 1.0e-05 is allowed" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("workload", CONFIGS)
def test_a_network_of_other_weights_says_something_else(workload, runs):
    result = loading.load(runs[workload])
    params, names = nets.take(result, nets.places(result)[0]), result.config.family.layer_names
    forward = result.config.family.parity_forward
    state = parameters.to_state(names, params)
    assert forward(result.config, params, state).passed
    for name in state:
        other = state | {name: state[name][::-1] + np.float32(0.1) if state[name].ndim else state[name] + np.float32(1)}
        assert not forward(result.config, params, other).passed, name


def test_a_weight_that_is_written_wrong_is_noticed(runs, tmp_path, capsys, monkeypatch):
    write = state_files.write

    def spoil(path, form, state):
        write(path, form, {name: np.array(values + (name == "log_z"), np.float32) for name, values in state.items()})

    monkeypatch.setattr(state_files, "write", spoil)
    out = tmp_path / "net.safetensors"
    assert main(["export", str(runs["hypergrid"]), "--to", "safetensors", "--out", str(out)]) == 1
    assert "differs from the run when read back" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_nothing_is_overwritten(runs, files, tmp_path, capsys):
    there = tmp_path / "there.pt"
    there.write_text("mine")
    assert main(["export", str(runs["hypergrid"]), "--to", "torch", "--out", str(there)]) == 2
    assert main(["export", str(runs["hypergrid"]), "--to", "torch", "--out", str(tmp_path)]) == 2
    assert bring(files["hypergrid", "torch"], runs["hypergrid"], tmp_path) == 2
    assert bring(files["hypergrid", "torch"], runs["hypergrid"], there) == 2
    assert there.read_text() == "mine" and list(tmp_path.iterdir()) == [there]
    assert "nothing is overwritten" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "torch", "--out", "x.safetensors"], "name for `--to safetensors`"),
        (["--to", "torch", "--out", "x.pt", "--seed", "0"], "no seed 0 in this run: it has 3 … 4"),
        (["--to", "torch", "--out", "x.pt", "--agent", "2"], "no agent 2 in this run"),
        (["--to", "torch", "--out", "there/x.pt"], "cannot be written: "),
    ],
)
def test_a_wrong_export_is_said_and_nothing_is_written(words, said, runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").write_text("a file, not a folder")
    assert main(["export", str(runs["treasurehunt"]), *words]) == 2
    assert said in capsys.readouterr().err and os.listdir(tmp_path) == ["there"]


def refused(file, run, tmp_path, capsys):
    """The sentence with which an import is refused; and that it leaves nothing behind."""
    before = set(tmp_path.rglob("*"))
    assert bring(file, run, tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert set(tmp_path.rglob("*")) == before
    assert said.startswith("xladder: `") and said.count("\n") == 1 and "Traceback" not in said
    return said


WRONG = {
    "missing": (lambda s: s.pop("log_z"), "missing ['log_z']"),
    "extra": (lambda s: s.update(more=np.zeros(2, np.float32)), "unexpected ['more']"),
    "misnamed": (lambda s: s.update(log_zed=s.pop("log_z")), "missing ['log_z'], unexpected ['log_zed']"),
    "misshaped": (
        lambda s: s.update(log_z=np.zeros(2, np.float32)),
        "'log_z' with shape [2], but these settings need []",
    ),
    "double": (lambda s: s.update(log_z=np.float64(0)[()].reshape(())), "'log_z' as 'float64'"),
    "half": (lambda s: s.update({"trunk.bias": s["trunk.bias"].astype(np.float16)}), "as 'float16'"),
    "whole numbers": (lambda s: s.update({"trunk.bias": s["trunk.bias"].astype(np.int32)}), "has to be float32"),
    "nan": (lambda s: s["trunk.bias"].__setitem__(0, np.nan), "nan or infinity in 'trunk.bias'"),
    "infinite": (lambda s: s["trunk.rows"].__setitem__((0, 0), np.inf), "nan or infinity in 'trunk.rows'"),
    "many": (lambda s: s.update({f"x{i}": np.zeros(1) for i in range(50)}), "'x0', 'x1', 'x10'] and 47 more"),
    "commands": (lambda s: s.update({"\x1b[2J": np.zeros(1)}), "\\x1b[2J"),
    "mixed": (lambda s: s.update({f"seed0.agent0.{k}": v for k, v in s.items()}), "and names without"),
    "a gap": (lambda s: prefixed(s, (0, 0), (2, 0)), "gaps"),
    "agents": (
        lambda s: prefixed(s, (0, 0), (0, 1)),
        "holds agents 0 … 1 of seed 0, but with these settings there are 1",
    ),
    "half a prefix": (lambda s: s.update({"seed0.log_z": s.pop("log_z")}), "missing ['log_z']"),
    "nothing": (lambda s: s.clear(), "holds no parameters"),
}


def prefixed(state, *places):
    plain = dict(state)
    state.clear()
    state.update({f"seed{s}.agent{a}.{name}": x for s, a in places for name, x in plain.items()})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_a_file_that_is_not_what_the_settings_need_is_refused(case, form, runs, files, tmp_path, capsys):
    state = {name: values.copy() for name, values in load_file(files["hypergrid", "safetensors"]).items()}
    spoil, sentence = case
    spoil(state)
    path = tmp_path / f"wrong.{FORMS[form]}"
    if form == "torch":
        torch.save({name: torch.from_numpy(np.array(values)) for name, values in state.items()}, path)
    else:
        save_file({name: np.array(values) for name, values in state.items()}, path)
    assert sentence in refused(path, runs["hypergrid"], tmp_path, capsys)


def test_the_settings_have_to_be_those_of_the_network(files, tmp_path, capsys):
    words = ["import", str(files["hypergrid", "torch"]), "--workload", "hypergrid", "--out", str(tmp_path / "run")]
    assert main(words) == 2
    assert "give the settings it was trained with" in capsys.readouterr().err
    assert main([*words, "--world.side", "5", "--learner.width", "16", "--loss", "tb"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "needs a file"),
        (["net.pt"], "needs a workload"),
        (["net.pt", "--workload"], "needs a name"),
        (["net.pt", "--workload=hypergrid"], "`--out` is missing"),
        (["net.pt", "--workload", "hypergird", "--out", "run"], "hypergrid"),
        (["net.pt", "--workload", "hypergrid", "--out", "run"], "`net.pt` cannot be read: No such file"),
        (["net.pt", "--workload", "hypergrid", "--out", "run", "--preset", "dmo"], "Did you mean `demo`?"),
    ],
)
def test_a_wrong_import_is_said(words, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["import", *words]) == 2
    assert said in capsys.readouterr().err and not os.listdir(tmp_path)


class Malice:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def packed(content: bytes, **parts: bytes) -> bytes:
    """An archive like PyTorch's with these instructions."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, part in {"data.pkl": content, "version": b"3\n", "byteorder": b"little", **parts}.items():
            archive.writestr(f"net/{name}", part)
    return file.getvalue()


def test_nothing_in_a_file_is_executed(runs, tmp_path, capsys):
    executed = tmp_path / "executed"
    torch.save({"log_z": Malice(executed)}, tmp_path / "torch.pt")
    for protocol in (2, 4):
        content = pickle.dumps({"log_z": Malice(executed)}, protocol=protocol)
        (tmp_path / f"plain-{protocol}.pt").write_bytes(content)
        (tmp_path / f"packed-{protocol}.pt").write_bytes(packed(content))
        (tmp_path / f"plain-{protocol}.safetensors").write_bytes(content)
    np.save(tmp_path / "array.npy", np.array([Malice(executed)], dtype=object), allow_pickle=True)
    for path in sorted(tmp_path.iterdir()):
        refused(path, runs["hypergrid"], tmp_path, capsys)
    assert not executed.exists()


def test_objects_and_other_things_than_tensors_are_refused(runs, files, tmp_path, capsys):
    state = torch.load(files["hypergrid", "torch"])
    for i, thing in enumerate(["a word", 3, [torch.zeros(())], torch.zeros(2, 2).to_sparse(), None, {"x": 1}]):
        torch.save(state | {"log_z": thing}, tmp_path / f"{i}.pt")
        refused(tmp_path / f"{i}.pt", runs["hypergrid"], tmp_path, capsys)
    os.mkfifo(tmp_path / "pipe.pt")
    assert "is not a file" in refused(tmp_path / "pipe.pt", runs["hypergrid"], tmp_path, capsys)
    torch.save([state], tmp_path / "list.pt")
    assert "holds a list" in refused(tmp_path / "list.pt", runs["hypergrid"], tmp_path, capsys)
    # An array of objects inside an archive, which `weights_only` forbids, and a buffer, which it allows.
    for thing in (np.array([None], dtype=object), bytearray(8)):
        content = pickle.dumps({"log_z": thing}, protocol=2)
        (tmp_path / "packed.pt").write_bytes(packed(content))
        assert "asks for" in refused(tmp_path / "packed.pt", runs["hypergrid"], tmp_path, capsys)


def test_claims_of_size_are_not_believed(runs, files, tmp_path, capsys):
    huge = torch.zeros(1).expand(2**20, 2**20)
    torch.save(torch.load(files["hypergrid", "torch"]) | {"log_z": huge}, tmp_path / "expanded.pt")
    assert "larger than the file" in refused(tmp_path / "expanded.pt", runs["hypergrid"], tmp_path, capsys)

    # The same instructions with a shape of 2³⁰ instead of 16, and as many numbers in the file as before.
    content = (files["hypergrid", "torch"]).read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    assert b"K\x10\x85" in parts["data.pkl"]
    instructions = parts.pop("data.pkl").replace(b"K\x10\x85", b"J\x00\x00\x00\x40\x85")
    (tmp_path / "claims.pt").write_bytes(packed(instructions, **parts))
    assert "larger than the file" in refused(tmp_path / "claims.pt", runs["hypergrid"], tmp_path, capsys)

    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("net/data.pkl", pickle.dumps({}, protocol=2))
        archive.writestr("net/data/0", bytes(2**20))
    (tmp_path / "bomb.pt").write_bytes(bomb.getvalue())
    assert "compressed" in refused(tmp_path / "bomb.pt", runs["hypergrid"], tmp_path, capsys)

    for name, header in {
        "offsets": {"log_z": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}},
        "shape": {"log_z": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 4]}},
        "negative": {"log_z": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        "dtype": {"log_z": {"dtype": "OBJECT", "shape": [], "data_offsets": [0, 4]}},
    }.items():
        text = json.dumps(header).encode()
        (tmp_path / f"{name}.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
        refused(tmp_path / f"{name}.safetensors", runs["hypergrid"], tmp_path, capsys)
    (tmp_path / "long.safetensors").write_bytes(struct.pack("<Q", 2**63) + b"{}")
    refused(tmp_path / "long.safetensors", runs["hypergrid"], tmp_path, capsys)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_is_cut_or_under_another_name_is_refused(form, runs, files, tmp_path, capsys):
    whole = files["hypergrid", form].read_bytes()
    for share in (0.0, 0.01, 0.3, 0.9, 0.999):
        for ending in {FORMS[form], "bin"}:
            path = tmp_path / f"cut.{ending}"
            path.write_bytes(whole[: int(len(whole) * share)])
            refused(path, runs["hypergrid"], tmp_path, capsys)
    other = tmp_path / f"other.{'pt' if form == 'safetensors' else 'safetensors'}"
    other.write_bytes(whole)
    assert "is not a" in refused(other, runs["hypergrid"], tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_bytes_changed_at_random_give_a_sentence_or_a_network(form, runs, files, tmp_path, capsys):
    whole, rng = files["hypergrid", form].read_bytes(), np.random.default_rng(0)
    for i in range(25):
        spoiled = bytearray(whole)
        for place in rng.integers(0, min(len(whole), 1500), 3):
            spoiled[place] = rng.integers(256)
        path = tmp_path / f"fuzzed.{FORMS[form]}"
        path.write_bytes(spoiled)
        assert bring(path, runs["hypergrid"], tmp_path / f"out-{i}") in (0, 2)
        assert "bug" not in capsys.readouterr().err


def test_an_old_pytorch_opens_nothing(runs, files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    assert bring(files["hypergrid", "torch"], runs["hypergrid"], tmp_path / "run") == 2
    assert "2.10 or newer" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_without_pytorch_it_is_said_that_nothing_was_compared(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(exchange, "is_installed", lambda package: False)
    out = tmp_path / "net.safetensors"
    assert main(["export", str(runs["hypergrid"]), "--to", "safetensors", "--out", str(out)]) == 0
    assert "PyTorch is not installed here" in capsys.readouterr().out


@pytest.mark.slow
def test_safetensors_need_no_pytorch(runs, tmp_path):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from xladder.errors import UsageError\n"
        "from xladder.runs import loading, exchange\n"
        f"result, file = loading.load({str(runs['hypergrid'])!r}), Path({str(tmp_path / 'net.safetensors')!r})\n"
        "print(exchange.export(result, 'safetensors', file).level)\n"
        "imported = exchange.arrange(file, result.plan, exchange.read(file, result.plan))\n"
        "print(exchange.write_run(file.parent / 'run', result.plan, imported, [file]).name)\n"
        "try:\n    exchange.export(result, 'torch', file.with_suffix('.pt'))\n"
        "except UsageError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    level, run, error = done.stdout.splitlines()
    assert (level, run) == ("None", "run") and "[torch]'" in error
    assert_trees_equal(loading.load(tmp_path / "run").params, loading.load(runs["hypergrid"]).params)


def content_of_agent(seed):
    """What sorrel saves of an agent that has made two steps."""
    torch.manual_seed(seed)
    net, target = Sorrel(), Sorrel()
    optimiser = torch.optim.Adam(net.parameters(), lr=TINY.learner.lr)
    for _ in range(2):
        optimiser.zero_grad()
        sum((parameter**2).sum() for parameter in net.parameters()).backward()
        optimiser.step()
    return {"local": net.state_dict(), "target": target.state_dict(), "optim": optimiser.state_dict()}


@pytest.fixture(scope="module")
def agents(runs, tmp_path_factory):
    """Files of two agents as sorrel saves them."""
    folder = tmp_path_factory.mktemp("agents")
    for i in range(2):
        torch.save(content_of_agent(i), folder / f"agent-{i}.pkl")
    return sorted(folder.iterdir())


def test_whole_agents_come_in_one_file_each_and_go_out_again(agents, runs, tmp_path, capsys):
    run = tmp_path / "run"
    assert bring(agents[0], runs["treasurehunt"], run, files=agents[1:]) == 0
    assert "with target networks and Adam's state" in capsys.readouterr().out
    assert main(["export", str(run), "--to", "sorrel", "--out", str(tmp_path / "out")]) == 0
    assert "after 2 updates" in capsys.readouterr().out
    for i, file in enumerate(sorted((tmp_path / "out").iterdir())):
        assert file.name == f"seed3-agent{i}.pkl"
        found, expected = torch.load(file), torch.load(agents[i])
        for part in ("local", "target"):
            names = [name for name in expected[part] if not parameters.is_noise(name)]
            assert all(torch.equal(found[part][name], expected[part][name]) for name in names)
            Sorrel().load_state_dict(found[part])
        assert found["optim"]["param_groups"] == expected["optim"]["param_groups"]
        for number, row in expected["optim"]["state"].items():
            assert all(torch.equal(found["optim"]["state"][number][key], row[key]) for key in row)


def test_an_agents_file_alone_serves_all_agents_with_its_optimiser(agents, runs):
    begun = find_beginning(agents[1], loading.load(runs["treasurehunt"]).plan)
    count = begun.optimiser["state.runs.agents.opt_state.count"]
    assert count.shape == (2, 2) and (count == 2).all()
    for leaf in jax.tree.leaves(begun.params):
        np.testing.assert_array_equal(leaf[0, 0], leaf[1, 1])


@pytest.mark.slow
def test_a_trained_run_gives_its_agents_with_their_state_and_another_goes_on_from_them(tmp_path):
    config = replace(TINY, epochs=6)
    theirs = xladder.train("treasurehunt", "sequential", config=config, progress=False, out=tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), "--to", "sorrel", "--out", str(tmp_path / "agents")]) == 0
    files, out = sorted((tmp_path / "agents").iterdir()), tmp_path / "imported"
    assert [file.name for file in files] == ["seed0-agent0.pkl", "seed0-agent1.pkl"]
    assert bring(files[0], tmp_path / "run", out, files=files[1:]) == 0
    ours, theirs = loading.load(out), loading.load(tmp_path / "run")
    assert_trees_equal(ours.params, theirs.params)
    kept, original = start_files.states_of_run(ours), start_files.states_of_run(theirs)
    assert kept.keys() == original.keys() and any(".target." in name for name in kept)
    assert all(np.array_equal(kept[name], original[name]) for name in kept)
    assert kept["state.runs.agents.opt_state.count"].min() > 0
    # A run that starts from them has their optimiser; a run of an earlier tick than its agents has none to give.
    begun = find_beginning(out, theirs.plan)
    running = begun.around(theirs.plan, RUNGS["fused"].start)(theirs.config, [0], None)
    np.testing.assert_array_equal(running.runs.agents.opt_state.count[0], kept["state.runs.agents.opt_state.count"][0])
    moved = replace(theirs, params=jax.tree.map(lambda leaf: leaf + 1, theirs.params))
    assert start_files.states_of_run(moved) == {}


def test_a_run_without_adams_state_says_so(runs, tmp_path, capsys):
    out = tmp_path / "agents"
    assert main(["export", str(runs["treasurehunt"]), "--to", "sorrel", "--out", str(out), "--seed", "4"]) == 0
    assert "has not kept Adam's state" in capsys.readouterr().out
    content = torch.load(out / "seed4-agent1.pkl")
    assert content["optim"]["state"] == {} and content["optim"]["param_groups"][0]["lr"] == TINY.learner.lr
    Sorrel().load_state_dict(content["target"])


def test_files_and_agents_that_do_not_match_are_refused(agents, runs, one, tmp_path, capsys):
    files, run = agents, runs["treasurehunt"]
    for files_given, words in [
        ([files[0]] * 3, "There are 3 files, but with these settings there are 2 agents"),
        ([files[0], files[0].parent / "none.pkl"], "cannot be read"),
    ]:
        assert bring(files_given[0], run, tmp_path / "run", files=files_given[1:]) == 2
        assert words in capsys.readouterr().err
    assert bring(files[0], runs["hypergrid"], tmp_path / "run") == 2
    assert main(["export", str(runs["hypergrid"]), "--to", "sorrel", "--out", str(tmp_path / "x")]) == 2
    assert "no agents of sorrel's kind" in capsys.readouterr().err
    assert main(["export", str(run), "--to", "sorrel", "--out", str(agents[0].parent)]) == 2
    assert "nothing is overwritten" in capsys.readouterr().err
    # Two files of one network each, without optimisers, are agents, too.
    assert bring(one, runs["treasurehunt"], tmp_path / "two", files=[one]) == 0
    assert not (tmp_path / "two/checkpoints/start.safetensors").exists()


BROKEN = {
    "another optimiser": lambda c: c["optim"]["param_groups"][0].update(amsgrad=True),
    "nan": lambda c: c["optim"]["state"][0]["exp_avg"].fill_(float("nan")),
    "another shape": lambda c: c["target"].update({"head1.bias": torch.zeros(3)}),
    "missing": lambda c: c["target"].pop("head1.bias"),
    "no groups": lambda c: c["optim"].pop("param_groups"),
    "a missing moment": lambda c: c["optim"]["state"][3].pop("exp_avg_sq"),
    "uneven steps": lambda c: c["optim"]["state"][3].update(step=torch.tensor(99.0)),
    "doubles": lambda c: c["local"].update({"head1.bias": c["local"]["head1.bias"].double()}),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_damaged_agents_file_is_refused_in_a_sentence(how, agents, runs, tmp_path, capsys):
    content = torch.load(agents[0])
    BROKEN[how](content)
    torch.save(content, tmp_path / "broken.pkl")
    assert bring(tmp_path / "broken.pkl", runs["treasurehunt"], tmp_path / "run") == 2
    said = capsys.readouterr().err
    assert "broken.pkl" in said and len(said.strip().splitlines()) <= 3 and not (tmp_path / "run").exists()
