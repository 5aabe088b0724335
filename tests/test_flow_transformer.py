"""The transformer of a GFlowNet: as PyTorch's own encoder, equal to its twin, and for every kind of world."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.conftest import TINY_GRID, TINY_SEQUENCES
from tests.test_cli import call
from xladder import bridge
from xladder.families.gflownet.parity import levels
from xladder.learners.choosing import choose
from xladder.nets.flow_transformer import TokenTrunk
from xladder.nets.flow_transformer_torch import TokenTrunk as TorchTrunk

SMALL = {"network": "transformer", "width": 16, "layers": 2, "attention_heads": 4, "weight_decay": 1e-2}


def with_transformer(config, **changes):
    return replace(config, learner=replace(config.learner, **SMALL), **changes)


@pytest.mark.slow
def test_blocks_are_those_of_pytorchs_encoder():
    trunk = TokenTrunk(inputs=15, width=16, layers=2, heads=4, tokens=3)
    encoded = jnp.array([[0, 7, 14], [4, 5, 10]])
    params = trunk.init(jax.random.key(0), encoded)["params"]
    embedded = np.asarray(params["rows"])[np.asarray(encoded) % 5]
    x = np.concatenate([np.tile(params["first"], (2, 1, 1)), embedded], axis=1)
    x = torch.tensor(x) + TorchTrunk(15, 16, 2, 4, 3).places
    for layer in range(2):
        ours = params[f"layer_{layer}"]
        block = torch.nn.TransformerEncoderLayer(16, 4, 16, dropout=0.0, batch_first=True)
        pairs = {
            "self_attn.in_proj_weight": ours["qkv"]["kernel"].T,
            "self_attn.in_proj_bias": ours["qkv"]["bias"],
            **{
                f"{theirs}.{leaf}": ours[name]["kernel"].T if leaf == "weight" else ours[name]["bias"]
                for theirs, name in {"self_attn.out_proj": "out", "linear1": "hidden", "linear2": "output"}.items()
                for leaf in ("weight", "bias")
            },
            **{
                f"norm{i}.{leaf}": ours[f"norm_{i}"]["scale" if leaf == "weight" else "bias"]
                for i in (1, 2)
                for leaf in ("weight", "bias")
            },
        }
        block.load_state_dict({name: torch.tensor(np.array(value)) for name, value in pairs.items()})
        x = block(x)
    np.testing.assert_allclose(trunk.apply({"params": params}, encoded), x.detach().numpy(), atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(with_transformer(TINY_SEQUENCES), id="any"),
        pytest.param(
            with_transformer(TINY_SEQUENCES, loss="subtb", world=replace(TINY_SEQUENCES.world, order="append")),
            id="append",
            marks=pytest.mark.slow,
        ),
        pytest.param(with_transformer(TINY_GRID, loss="db"), id="grid", marks=pytest.mark.slow),
    ],
)
def test_parity(config):
    failed = [level for level in levels(config, updates=10) if not level.passed]
    assert not failed, failed


@pytest.mark.slow
def test_a_separate_trunk_goes_through_pytorch_unchanged():
    from xladder.families.gflownet.program import Program
    from xladder.learners.gflownet_torch import TorchGFlowNet

    config = with_transformer(TINY_SEQUENCES, loss="db")
    config = replace(config, learner=replace(config.learner, trunk="separate"))
    params = Program(config).init(1).agent.params
    other = TorchGFlowNet(config)
    other.net.load_state_dict(bridge.to_torch("gflownet", params))
    back = bridge.to_jax("gflownet", other.net.state_dict())
    jax.tree.map(np.testing.assert_array_equal, back, jax.tree.map(np.asarray, params))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--learner.width", "20"], "multiple of `--learner.attention-heads`"),
        (["--learner.attention-heads", "0"], "1 or more"),
        (["--learner.weight-decay", "-1"], "cannot be negative"),
    ],
)
def test_bad_settings_end_in_a_sentence(flags, said, capsys):
    assert call("train", "bits", "--learner.network", "transformer", *flags) == 2
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_one_of_many_actions_is_chosen_with_its_probability():
    actions = 700
    rng = np.random.default_rng(0)
    probs = np.where(rng.random(actions) < 0.9, 0.0, rng.random(actions))
    probs[-30:] = 0.0
    probs /= probs.sum()
    draws = (np.arange(5_000) + 0.5) / 5_000
    chosen = np.asarray(choose(jnp.asarray(np.tile(probs, (5_000, 1)), jnp.float32), jnp.asarray(draws, jnp.float32)))
    shares = np.bincount(chosen, minlength=actions) / 5_000
    assert (shares[probs == 0] == 0).all()
    np.testing.assert_allclose(shares, probs, atol=5e-4)
    last = choose(jnp.asarray(probs[None], jnp.float32), jnp.float32([np.nextafter(np.float32(1), np.float32(0))]))
    assert probs[int(last[0])] > 0
