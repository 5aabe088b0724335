"""Agents out of runs and into sorrel's own models, and back: both networks and Adam's state, bit for bit."""

from importlib.util import find_spec

import numpy as np
import pytest

if find_spec("sorrel") is None:
    pytest.skip("sorrel is not installed here: make test-sorrel", allow_module_level=True)

from sorrel.models.pytorch import PyTorchIQN

from tests.sorrel.test_dropin import arrays
from xladder import parameters
from xladder.cli.main import main
from xladder.core.state import flatten
from xladder.runs import loading, nets, start_files
from xladder.sorrel import JaxIQN

SETTINGS = ["--learner.width", "16", "--learner.batch-size", "8", "--learner.memory", "64", "--world.num-agents", "2"]
SIZES = {"input_size": (150,), "action_space": 4, "layer_size": 16, "epsilon": 0.1, "device": "cpu", "n_frames": 5}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that has learned, and the folder of its agents."""
    folder = tmp_path_factory.mktemp("trained")
    words = ["train", "treasurehunt", "--rung", "fused", "--epochs", "6", *SETTINGS, "--eval-episodes", "2"]
    assert main([*words, "--seeds", "2", "--out", str(folder / "run")]) == 0
    assert main(["export", str(folder / "run"), "--to", "sorrel", "--out", str(folder / "agents")]) == 0
    return folder


def test_sorrels_model_loads_what_a_run_has_learned_and_gives_it_back(trained, tmp_path):
    files = sorted((trained / "agents").iterdir())
    assert [file.name for file in files] == [f"seed{s}-agent{a}.pkl" for s in range(2) for a in range(2)]
    run = loading.load(trained / "run")
    kept = start_files.states_of_run(run)
    for file in files:
        seed, agent = int(file.name[4]), int(file.name[11])
        theirs = PyTorchIQN(**SIZES, seed=0)
        theirs.load(file)
        local, target, mu, nu, steps = arrays(theirs)
        online = parameters.to_state("iqn", nets.take(run, (seed, agent)))
        assert all(np.array_equal(local[name], online[name]) for name in online)
        assert steps > 0 and not np.array_equal(local["ff_1.weight"], target["ff_1.weight"])
        names = {"target.": target, "opt_state.mu.": mu, "opt_state.nu.": nu}
        for part, state in names.items():
            tree = parameters.to_tree("iqn", state)
            for name, leaf in flatten(tree):
                np.testing.assert_array_equal(leaf, kept[f"{start_files.AGENT_STATE}{part}{name}"][seed, agent])
        theirs.save(tmp_path / file.name)
    words = ["import", *(str(tmp_path / f"seed1-agent{a}.pkl") for a in range(2)), "--workload", "treasurehunt"]
    assert main([*words, *SETTINGS, "--out", str(tmp_path / "run")]) == 0
    assert main(["export", str(tmp_path / "run"), "--to", "sorrel", "--out", str(tmp_path / "again")]) == 0
    for a in range(2):
        ours = JaxIQN(**SIZES, seed=1)
        ours.load(tmp_path / "again" / f"seed0-agent{a}.pkl")
        theirs = PyTorchIQN(**SIZES, seed=2)
        theirs.load(trained / "agents" / f"seed1-agent{a}.pkl")
        for found, expected in zip(arrays(ours)[:4], arrays(theirs)[:4], strict=True):
            assert all(np.array_equal(found[name], expected[name]) for name in expected)
        assert arrays(ours)[4] == arrays(theirs)[4]
