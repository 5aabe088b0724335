"""Rung `compiled`: PyTorch compiled makes the run of `torch`; what it cannot do it says in a sentence."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import jax
import numpy as np
import pytest
import torch

from tests.conftest import TINY, TINY_GRID
from tests.test_value_rungs import SEVERAL_STEPS
from xladder.cli.main import main
from xladder.core.compilers import why_no_compiler
from xladder.core.state import capture, restore
from xladder.errors import UsageError, XladderError
from xladder.families.gflownet.host_loop import HostLoop
from xladder.families.gflownet.torch_backend import Backend
from xladder.learners import compiled_torch, gflownet_torch, value_torch
from xladder.learners.compiled_torch import Graph, compile_function, require_compiler
from xladder.replay.batch import Batch
from xladder.rungs import compiled
from xladder.rungs import torch as torch_rung
from xladder.runs import compare

CONDITIONAL = replace(TINY_GRID, learner=replace(TINY_GRID.learner, replay="diverse", local_search=2, condition="beta"))
CONFIGS = {"treasurehunt": TINY, "cartpole": SEVERAL_STEPS, "hypergrid": TINY_GRID, "conditional": CONDITIONAL}
LOSSES = ("tb", "db", "subtb", "fm", "mdb", "fldb", "flsubtb", "vargrad", "rtb")
TICKS = 8
ROUNDING = 1e-5  # of parameters after 8 ticks; 6e-8 was seen, and one step of Adam is 1e-3


@pytest.fixture
def uncompiled(monkeypatch):
    """Functions are handed over to be compiled, and are not: a C++ compiler takes seconds for each."""
    given = []

    def keep(function, dynamic=False):
        given.append(function.__name__)
        return function

    for module in (gflownet_torch, value_torch):
        monkeypatch.setattr(module, "compile_function", keep)
    return given


def both(config):
    """A run of `torch` and one of `compiled`, one after the other: PyTorch's generator is theirs both."""
    runs, found = [], []
    for rung in (torch_rung, compiled):
        runs.append(rung.start(config, [3], threads=1))
        found.append(runs[-1].advance(TICKS))
    return runs, found


def largest_difference(one, other):
    pairs = zip(jax.tree.leaves(one.params()), jax.tree.leaves(other.params()), strict=True)
    return max(np.abs(ours - theirs).max() for ours, theirs in pairs)


@pytest.mark.parametrize("name", CONFIGS)
def test_compiling_changes_no_number_and_no_draw(name, uncompiled):
    """The dry run that compiles trains; state, memory of the optimiser and generators are as before it."""
    (plain, ours), (expected, found) = both(CONFIGS[name])
    assert len(uncompiled) >= 2
    assert found.keys() == expected.keys()
    for key in expected:
        np.testing.assert_array_equal(found[key], expected[key])
    assert largest_difference(plain, ours) == 0


class Replayed:
    """Stands in for a graph: calls the function with what lies where it was captured."""

    shapes: ClassVar = set()

    def __init__(self, function):
        self.function, self.places = function, {}

    def __call__(self, *inputs):
        assert all(one is None or one.device.index is None for one in inputs[: len(Batch._fields)]), "copied twice"
        key = tuple(None if one is None else one.shape for one in inputs)
        for place, given in zip(self.places.setdefault(key, [_clone(one) for one in inputs]), inputs, strict=True):
            if place is not None:
                place.copy_(given)
        Replayed.shapes.add(key)
        return self.function(*self.places[key])


def _clone(tensor):
    return None if tensor is None else tensor.clone()


@pytest.mark.parametrize("name", CONFIGS)
def test_what_a_gpu_captures_makes_the_run_of_torch(name, uncompiled, monkeypatch):
    """`cpu:0` counts as a GPU: batches are padded to a few sizes, and graphs fetch their inputs themselves."""
    for module in (gflownet_torch, value_torch):
        monkeypatch.setattr(module, "Graph", Replayed)
    monkeypatch.setattr(Replayed, "shapes", set())
    monkeypatch.setattr(compiled, "require_compiler", lambda device: None)
    plain = torch_rung.start(CONFIGS[name], [3], threads=1)
    expected = plain.advance(TICKS)
    monkeypatch.setattr(compiled, "find_device", lambda device: "cpu:0")
    ours = compiled.start(CONFIGS[name], [3])
    captured = len(Replayed.shapes)
    found = ours.advance(TICKS)
    assert len(Replayed.shapes) == captured, "captured while training, which would update the agent too often"
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-4, atol=1e-6)
    assert largest_difference(plain, ours) < ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_compiled_makes_the_run_of_torch(name):
    (plain, ours), (expected, found) = both(CONFIGS[name])
    assert ours.compile_seconds > 0
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-4, atol=1e-6)
    assert largest_difference(plain, ours) < ROUNDING
    with torch._dynamo.config.patch(error_on_recompile=True):  # the dry run has met all shapes
        ours.advance(2)


@pytest.mark.slow
def test_torch_compile_compiles_the_loss_of_every_agent():
    """Past PyTorch's limit of 8 it would fall back to eager without a word."""
    from torch._dynamo.testing import CompileCounter

    class Agent:
        def __init__(self, number):
            self.layer = torch.nn.Linear(number + 2, 1)

        def act(self, x):
            return self.layer(x).sum()

    compile_function(Agent(0).act)  # sets the limits
    counter = CompileCounter()
    for number in range(12):
        agent = Agent(number)
        torch.compile(agent.act, backend=counter, dynamic=False)(torch.ones(3, number + 2))
    assert counter.frame_count == 12


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("weighting", ["trajectories", "transitions"])
def test_padded_rows_and_steps_change_no_loss_and_no_gradient(loss, weighting):
    """On a GPU a batch is padded to one of a few sizes, each of them a graph."""
    config = replace(TINY_GRID, loss=loss, learner=replace(TINY_GRID.learner, weighting=weighting))
    backend = Backend(config, 3, "cpu")
    learner, kept = backend.learner, []
    backend.learn = lambda tick, agent, batch: kept.append(batch) or learner.update(batch)
    HostLoop(config, backend, backend).advance()
    (batch,) = kept
    real = int(batch.length.sum())
    found = []
    for rows, steps in ((None, None), (real + 7, learner.world.max_steps)):
        given = learner.prepare(batch, rows, steps)
        assert len(given.actions) == (rows or real)
        value, log_z = learner.loss_of(given)
        learner.net.zero_grad()
        value.backward()
        grads = [p.grad.clone() for p in learner.net.parameters() if p.grad is not None]
        found.append([value.detach(), log_z, *grads])
    for plain, padded in zip(*found, strict=True):
        torch.testing.assert_close(padded, plain, rtol=1e-5, atol=1e-6)


def test_state_is_restored_in_place():
    """A graph goes on with the memory that it was captured with."""
    backend = Backend(TINY_GRID, 3, "cpu")
    fresh = {name: array.copy() for name, array in capture(backend).items()}
    HostLoop(TINY_GRID, backend, backend).advance()
    optimiser = backend.learner.optimiser
    places = [tensor.data_ptr() for held in optimiser.state.values() for tensor in held.values()]
    restore(backend, fresh)
    held = [tensor for state in optimiser.state.values() for tensor in state.values()]
    assert [tensor.data_ptr() for tensor in held] == places
    assert all(not tensor.any() for tensor in held)


class FakeGraph:
    """Replays by calling the function again, as a CUDA graph does with its kernels."""

    def __init__(self):
        self.replays = 0

    def replay(self):
        self.replays += 1


def test_a_graph_copies_inputs_to_where_it_was_captured(monkeypatch):
    calls, graph = [], FakeGraph()

    def capture_once(self, inputs):
        calls.append([None if one is None else tuple(one.shape) for one in inputs])
        return graph, tuple(None if one is None else one.clone() for one in inputs), "outputs"

    monkeypatch.setattr(Graph, "_capture", capture_once)
    run = Graph(lambda x, y: x)
    assert run(torch.zeros(2), None) == run(torch.ones(2), None) == "outputs"
    ((_, places, _),) = run._captured.values()
    assert places[0].tolist() == [1.0, 1.0] and places[1] is None
    run(torch.zeros(3), None)
    assert calls == [[(2,), None], [(3,), None]] and graph.replays == 3


@pytest.mark.parametrize(
    ("device", "variable", "sentence"),
    [
        ("cpu", "CXX", "needs a C++ compiler, and none was found: install g++, or use `torch`"),
        ("gpu", "CC", "needs a C compiler, and none was found: install gcc, or use `torch`"),
    ],
)
def test_without_a_compiler_there_is_a_sentence(device, variable, sentence, tmp_path, monkeypatch):
    monkeypatch.delenv(variable, raising=False)
    assert why_no_compiler(device) == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why_no_compiler(device) == sentence
    monkeypatch.setenv(variable, "nonsense++ -O3")
    assert f"`nonsense++ -O3`, which {variable} names, cannot be run" in why_no_compiler(device)


def test_train_and_compare_without_a_compiler(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    words = ["hypergrid", "--iterations", "2", "--world.side", "3"]
    assert main(["train", *words, "--rung", "compiled", "--out", str(tmp_path / "run"), "--device", "cpu"]) == 2
    assert "needs a C++ compiler, and" in capsys.readouterr().err
    assert not (tmp_path / "run" / "metrics.csv").exists()


NOT_HERE = "The rung `compiled` needs triton on a GPU: pip install triton, or use `torch`."


def refusing(plan):
    """Measures every rung but `compiled`, which its process refuses, whatever it lacks there."""
    if plan.rung == "compiled":
        refused = XladderError(f"On the `compiled` rung: {NOT_HERE}")
        refused.exit_code = UsageError.exit_code
        raise refused
    parts = {"sampling_seconds": 1.0, "update_seconds": 1.0, "compile_seconds": 0.0, "peak_memory_mb": 1}
    parts |= {"return_first": 0.0, "return_last": 0.0} | dict.fromkeys(plan.workload.family.last_measured)
    return {"device": "cpu", "rung": plan.rung, "seconds_per_iteration": 2.0, "note": "", "learning": True} | parts


OTHERS = ["torch", "hybrid", "sequential", "parallel", "fused"]


def test_a_comparison_goes_on_without_compiled(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compare, "measure_apart", refusing)
    found = compare.compare("hypergrid", iterations=2)
    assert [row["rung"] for row in found["rows"]] == OTHERS and found["left_out"] == {"compiled": NOT_HERE}
    assert found["reference"] == "torch"
    with pytest.raises(XladderError, match="needs triton"):  # asked for by name
        compare.compare("hypergrid", ["torch", "compiled"], iterations=2)

    monkeypatch.chdir(tmp_path)
    assert main(["compare", "hypergrid", "--iterations", "2", "--json", "found.json"]) == 0
    assert f"`compiled` is left out. {NOT_HERE}" in " ".join(capsys.readouterr().out.split())
    written = json.loads((tmp_path / "found.json").read_text())
    assert [row["rung"] for row in written["rows"]] == OTHERS and written["left_out"] == {"compiled": NOT_HERE}


def test_other_failures_of_compiled_end_a_comparison(monkeypatch):
    def failing(plan):
        if plan.rung == "compiled":
            raise XladderError("On the `compiled` rung: it was killed")
        return refusing(plan)

    monkeypatch.setattr(compare, "measure_apart", failing)
    with pytest.raises(XladderError, match="it was killed"):
        compare.compare("hypergrid", iterations=2)


def test_a_pytorch_that_cannot_compile_is_named(monkeypatch):
    from torch._dynamo import eval_frame

    monkeypatch.setattr(eval_frame, "is_dynamo_supported", lambda: False)
    with pytest.raises(UsageError, match=r"needs `torch.compile`, which PyTorch .* with Python .* does not have"):
        require_compiler("cpu")


def test_a_gpu_needs_triton_and_a_pytorch_built_for_it(monkeypatch):
    monkeypatch.setattr(compiled_torch, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="needs triton on a GPU"):
        require_compiler("cuda")
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="This PyTorch cannot use the GPU"):
            compiled.start(TINY_GRID, [0], SimpleNamespace(platform="gpu"))


@pytest.mark.slow
def test_a_compiler_that_fails_is_a_sentence(tmp_path):
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    env = os.environ | {"CXX": str(broken), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    words = ["train", "hypergrid", "--rung", "compiled", "--iterations", "2", "--device", "cpu", "--threads", "1"]
    command = [sys.executable, "-m", "xladder", *words, "--out", str(tmp_path / "run")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "could not compile this: " in done.stderr and "Traceback" not in done.stderr


class OfAGpu:
    """Stands for PyTorch's streams and graphs; whatever is captured ends in another error, as on a GPU."""

    def __init__(self, *_, **__):
        pass

    def wait_stream(self, other):
        pass

    def __enter__(self):
        pass

    def __exit__(self, kind, error, trace):
        if error:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            RuntimeError("CUDA error: operation not permitted when stream is capturing\nCUDA kernel errors might be"),
            "could not capture this as a CUDA graph: CUDA error: operation not permitted when stream is capturing. No",
        ),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
            "The GPU has no memory left for this: CUDA out of memory. Tried to allocate 2.00 GiB. Use a smaller batch.",
        ),
    ],
)
def test_a_capture_that_fails_is_a_sentence(error, sentence, monkeypatch):
    for name in ("Stream", "current_stream", "CUDAGraph", "stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, OfAGpu)
    calls = []

    def synchronises():
        calls.append(1)
        if len(calls) > compiled_torch.WARM_UPS:
            raise error

    with pytest.raises(UsageError) as caught, compiled_torch.refused_in_a_sentence():
        Graph(synchronises)()
    assert sentence in str(caught.value)


def test_a_failure_of_our_own_stays_one():
    with pytest.raises(RuntimeError, match="shapes"), compiled_torch.refused_in_a_sentence():
        raise RuntimeError("shapes do not fit")


def test_comparisons_are_with_the_faster_pytorch(monkeypatch):
    times = {"torch": 3.0, "compiled": 2.0, "fused": 1.0}
    monkeypatch.setattr(
        compare,
        "measure_apart",
        lambda plan: {"device": "cpu", "rung": plan.rung, "seconds_per_epoch": times[plan.rung]},
    )
    found = compare.compare("treasurehunt", ["torch", "fused", "compiled"])
    assert found["reference"] == "compiled"
    assert [row["speedup"] for row in found["rows"]] == pytest.approx([2 / 3, 2.0, 1.0])
    assert compare.compare("treasurehunt", ["fused"])["reference"] is None


@pytest.mark.parametrize("words", [["--debug", "nans"], ["--jaxpr", "x.txt"]])
def test_what_needs_jax_is_refused(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = "train" if words[0] == "--debug" else "inspect"
    assert main([command, "hypergrid", "--rung", "compiled", *words]) == 2
    assert "`compiled`" in capsys.readouterr().err
