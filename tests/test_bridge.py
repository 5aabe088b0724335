"""Parameters across the border between PyTorch and JAX, and files that should not be let in."""

import os
import pickle
from dataclasses import replace

import jax
import numpy as np
import pytest
import torch

from tests.conftest import TINY_GRID, assert_trees_equal
from xladder import bridge
from xladder.errors import UsageError
from xladder.families.multi_agent.program import Program
from xladder.learners.gflownet import GFlowNetLearner
from xladder.learners.gflownet_torch import TorchGFlowNet
from xladder.learners.iqn_torch import TorchAgent


@pytest.fixture
def params(tiny):
    return jax.tree.map(np.asarray, jax.jit(Program(tiny).learner.init)(jax.random.key(0)).params)


@pytest.fixture
def agent(tiny):
    torch.manual_seed(0)
    learner = Program(tiny).learner
    return TorchAgent(tiny.learner, learner.actions, learner.encoding)


@pytest.mark.parametrize("names", ["iqn", "value"])
def test_from_jax_to_pytorch_and_back_every_bit_is_the_same(params, names):
    returned = bridge.to_jax(names, bridge.to_torch(names, params))
    assert jax.tree.structure(returned) == jax.tree.structure(params)
    assert_trees_equal(returned, params)


def test_from_pytorch_to_jax_and_back_every_bit_is_the_same(agent):
    state = agent.net.state_dict()
    returned = bridge.to_torch("value", bridge.to_jax("value", state))
    assert set(returned) == set(state)
    assert all(torch.equal(returned[name], state[name]) for name in state)


def test_a_bridged_state_dict_fits_the_twin_and_shares_no_memory(params, agent):
    agent.net.load_state_dict(bridge.to_torch("value", params))  # strict: all names, all shapes
    before = params["head"]["value"]["bias"].copy()
    with torch.no_grad():
        agent.net.head.value.bias += 1
    np.testing.assert_array_equal(params["head"]["value"]["bias"], before)


def sorrel_file(agent) -> dict:
    """What sorrel saves: noise buffers among the parameters, and the optimiser's state."""
    local = bridge.to_torch("iqn", bridge.to_jax("value", agent.net.state_dict()))
    for layer in ("ff_1", "advantage", "value"):
        for name in ("weight", "bias"):
            local[f"{layer}.epsilon_{name}"] = torch.randn_like(local[f"{layer}.{name}"])
    target = {name: values + 1 for name, values in local.items()}
    return {"local": local, "target": target, "optim": agent.optimiser.state_dict()}


def test_sorrels_files_are_read_and_their_noise_is_left_out(agent, tmp_path):
    path = tmp_path / "sorrel.pt"
    torch.save(sorrel_file(agent), path)
    found = bridge.load_file("iqn", path)
    assert set(found) == {"params", "target"}
    assert_trees_equal(found["params"], bridge.to_jax("value", agent.net.state_dict()))
    assert_trees_equal(found["target"], jax.tree.map(lambda x: x + 1, found["params"]))


def test_a_plain_state_dict_is_read_too(agent, tmp_path):
    path = tmp_path / "net.pt"
    torch.save(agent.net.state_dict(), path)
    found = bridge.load_file("value", path)
    assert set(found) == {"params"}
    assert_trees_equal(found["params"], bridge.to_jax("value", agent.net.state_dict()))


def test_wrong_names_are_refused_and_named(agent):
    state = bridge.to_torch("iqn", bridge.to_jax("value", agent.net.state_dict()))
    state["head2.weight"] = state.pop("head1.weight")
    with pytest.raises(UsageError, match=r"missing \['head1.weight'\], unexpected \['head2.weight'\]"):
        bridge.to_jax("iqn", state)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_file_that_would_run_code_is_refused_unexecuted(tmp_path):
    class Malice:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    for name, write in {"pickle": pickle.dump, "torch": torch.save}.items():
        path = tmp_path / name
        with path.open("wb") as file:
            write({"local": Malice()}, file)
        with pytest.raises(UsageError, match="not a PyTorch file of plain tensors"):
            bridge.load_file("iqn", path)
        assert not (tmp_path / "executed").exists()


CONTENTS = {"empty": b"", "text": b"hello", "zip header only": b"PK\x03\x04 and nothing else"}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_damaged_files_are_refused_with_a_sentence(content, tmp_path):
    path = tmp_path / "damaged.pt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"damaged\.pt"):
        bridge.load_file("iqn", path)


def test_a_truncated_file_is_refused(agent, tmp_path):
    path = tmp_path / "half.pt"
    torch.save(agent.net.state_dict(), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UsageError, match=r"half\.pt"):
        bridge.load_file("iqn", path)


def test_something_else_than_a_dict_is_refused(tmp_path):
    path = tmp_path / "list.pt"
    torch.save([torch.zeros(3)], path)
    with pytest.raises(UsageError, match="holds a list"):
        bridge.load_file("iqn", path)


def test_a_missing_file_is_refused_with_a_sentence(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere\.pt.*cannot be read: No such file"):
        bridge.load_file("iqn", tmp_path / "nowhere.pt")


# With and without log Z, a backward policy and a flow; hidden layers shared, or one set for each head.
FLOWS = {
    "tb, shared": {"loss": "tb"},
    "tb, separate, uniform": {"loss": "tb", "trunk": "separate", "backward": "uniform"},
    "subtb, separate, three layers": {"loss": "subtb", "trunk": "separate", "layers": 3},
    "fm, shared, one layer": {"loss": "fm", "layers": 1},
}


def flow_config(loss, **learner):
    return replace(TINY_GRID, loss=loss, learner=replace(TINY_GRID.learner, **learner))


@pytest.mark.parametrize("case", FLOWS.values(), ids=FLOWS.keys())
def test_gflownets_cross_the_border_and_come_back_with_every_bit(case):
    config = flow_config(**case)
    twin = TorchGFlowNet(config)
    if case["loss"] == "tb":
        torch.nn.init.constant_(twin.net.log_z, 0.1)
    state = twin.net.state_dict()
    params = bridge.to_jax("gflownet", state)
    fresh = jax.eval_shape(GFlowNetLearner(config).init, jax.random.key(0)).params
    assert jax.tree.map(lambda x: (x.shape, x.dtype), params) == jax.tree.map(lambda x: (x.shape, x.dtype), fresh)
    returned = bridge.to_torch("gflownet", params)
    assert set(returned) == set(state)
    assert all(torch.equal(returned[name], state[name]) for name in state)
    assert_trees_equal(bridge.to_jax("gflownet", returned), params)
    twin.net.load_state_dict(returned)  # strict: all names, all shapes
    with torch.no_grad():
        twin.net.forward_head.bias += 1
    assert not np.array_equal(params["forward_head"]["bias"], twin.net.forward_head.bias.detach())


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("trunk.rows", "trunk.table"), ("forward_head.weight", "policy.weight"), ("log_z", "log_z.weight")],
)
def test_wrong_names_of_a_gflownet_are_refused_and_named(ours, theirs):
    state = TorchGFlowNet(flow_config("tb")).net.state_dict()
    state[theirs] = state.pop(ours)
    with pytest.raises(UsageError, match=rf"not of the kind `gflownet`.*unexpected \['{theirs}'\]"):
        bridge.to_jax("gflownet", state)


def test_the_parameters_of_another_learner_are_refused(agent, params):
    with pytest.raises(UsageError, match="not of the kind `gflownet`"):
        bridge.to_jax("gflownet", agent.net.state_dict())
    with pytest.raises(UsageError, match="not of the kind `gflownet`"):
        bridge.to_torch("gflownet", params)


def test_an_unknown_learner_is_refused_with_a_sentence():
    for call in (bridge.to_torch, bridge.to_jax):
        with pytest.raises(UsageError, match=r"gflownett.*gflownet"):
            call("gflownett", {"log_z": np.float32(0)})


def test_what_is_not_one_networks_parameters_is_refused_with_a_sentence(params):
    both = jax.tree.map(lambda x: np.stack([x, x]), params)
    state = {name: torch.stack([x, x]) for name, x in bridge.to_torch("value", params).items()}
    for call, given in ((bridge.to_torch, both), (bridge.to_jax, state)):
        with pytest.raises(UsageError, match=r"shape .*convert one at a time"):
            call("value", given)
        with pytest.raises(UsageError, match=r"(is|are) a int, but"):
            call("value", 3)
    words = {name: np.array("no") for name in state}
    with pytest.raises(UsageError, match="has to hold real numbers"):
        bridge.to_jax("value", words)
