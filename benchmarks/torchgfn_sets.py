"""Train torchgfn on sets of items and measure exactly what it has learned, for `sets.py`. Prints one line of JSON.

    echo torch==2.13.0 > /tmp/torch.txt && python3.11 -m venv /tmp/torchgfn
    /tmp/torchgfn/bin/pip install -c /tmp/torch.txt torch torchgfn==2.4.1
    /tmp/torchgfn/bin/python benchmarks/torchgfn_sets.py --seeds 16 --points 500 1000 2000

`SetAddition`, `TBGFlowNet` with a learned backward policy on the same trunk, `Sampler`, one Adam with two groups, on
policy, as in the package's examples. The distribution of a policy is computed over all sets, the smaller ones first.
"""

import argparse
import json
from importlib import metadata
from itertools import combinations

import numpy as np
import torch
from gfn.estimators import DiscretePolicyEstimator
from gfn.gflownet import TBGFlowNet
from gfn.gym import SetAddition
from gfn.preprocessors import IdentityPreprocessor
from gfn.samplers import Sampler
from gfn.utils.modules import MLP

WIDTH, DEPTH, RATE, RATE_LOGZ = 256, 2, 1e-3, 0.1


def all_sets(items: int, most: int) -> np.ndarray:
    """Zeros and ones [sets, items], small sets first."""
    rows = [
        np.isin(np.arange(items), chosen) for size in range(most + 1) for chosen in combinations(range(items), size)
    ]
    return np.array(rows)


class Peer:
    """A model of torchgfn's, its optimizer, and the target."""

    def __init__(self, items: int, most: int, batch: int, energies: np.ndarray, seed: int):
        torch.manual_seed(seed)
        rates = torch.tensor(energies, dtype=torch.float32)
        self.env = SetAddition(items, most, reward_fn=lambda x: torch.exp(-(x * rates).sum(-1)))
        forward = MLP(items, items + 1, hidden_dim=WIDTH, n_hidden_layers=DEPTH, activation_fn="relu")
        backward = MLP(items, items, trunk=forward.trunk)
        encoding = IdentityPreprocessor(output_dim=items)
        ahead = DiscretePolicyEstimator(forward, items + 1, preprocessor=encoding)
        back = DiscretePolicyEstimator(backward, items + 1, preprocessor=encoding, is_backward=True)
        self.model, self.sampler, self.batch = TBGFlowNet(pf=ahead, pb=back, init_logZ=0.0), Sampler(ahead), batch
        self.optimizer = torch.optim.Adam(self.model.pf_pb_parameters(), lr=RATE)
        self.optimizer.add_param_group({"params": self.model.logz_parameters(), "lr": RATE_LOGZ})
        self.sets = all_sets(items, most)
        rewards = np.exp(-(self.sets * energies).sum(1))
        self.target, self.log_z = rewards / rewards.sum(), float(np.log(rewards.sum()))

    def train(self, iterations: int) -> None:
        """The package's loop, on policy."""
        for _ in range(iterations):
            paths = self.sampler.sample_trajectories(self.env, n=self.batch, save_logprobs=True)
            self.optimizer.zero_grad()
            self.model.loss(self.env, paths, recalculate_all_logprobs=False).backward()
            self.optimizer.step()

    @torch.no_grad()
    def measured(self) -> dict[str, float]:
        """The exact total variation, and the error of log Z."""
        states = self.env.states_from_tensor(torch.tensor(self.sets, dtype=torch.float32))
        logits = self.model.pf(states)
        policy = self.model.pf.to_probability_distribution(states, logits).probs.double().numpy()
        items, place = self.sets.shape[1], {tuple(row): i for i, row in enumerate(self.sets)}
        reached = np.zeros(len(self.sets))
        reached[0] = 1.0
        for i, row in enumerate(self.sets):
            for item in np.flatnonzero(~row) if policy[i, :items].sum() > 0 else ():
                after = row.copy()
                after[item] = True
                if tuple(after) in place:
                    reached[place[tuple(after)]] += reached[i] * policy[i, item]
        learned = reached * policy[:, items]
        found = 0.5 * np.abs(learned - self.target).sum()
        return {
            "tv": float(found),
            "mass": float(learned.sum()),
            "logz_error": abs(float(self.model.logZ) - self.log_z),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=10)
    parser.add_argument("--most", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--points", type=int, nargs="+", default=[500, 1000, 2000])
    options = parser.parse_args()
    torch.set_num_threads(1)
    energies = np.random.default_rng(0).uniform(-1.0, 1.0, options.items)
    points: list[list[dict[str, float]]] = [[] for _ in options.points]
    for seed in range(options.seeds):
        peer, done = Peer(options.items, options.most, options.batch, energies, seed), 0
        for point, iterations in zip(points, options.points, strict=True):
            peer.train(iterations - done)
            done = iterations
            point.append(peer.measured())
    rows = [
        {"iterations": n, **{key: [each[key] for each in point] for key in point[0]}}
        for n, point in zip(options.points, points, strict=True)
    ]
    print(json.dumps({"peer": f"torchgfn {metadata.version('torchgfn')}", "log_z": peer.log_z, "points": rows}))


if __name__ == "__main__":
    main()
