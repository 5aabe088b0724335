"""Time torchgfn's hypergrid with trajectory balance at the published settings: a PyTorch library for comparison.

    python3.11 -m venv /tmp/torchgfn && /tmp/torchgfn/bin/pip install torch==2.13.0
    echo torch==2.13.0 > /tmp/torch.txt && /tmp/torchgfn/bin/pip install -c /tmp/torch.txt torchgfn==2.4.1
    /tmp/torchgfn/bin/python benchmarks/torchgfn_peer.py [--device gpu] [--iterations 300]

The loop is that of the package's own hypergrid example: `Sampler`, `TBGFlowNet.loss`, one Adam with two groups; without
its validation, progress bar, gradient clipping and checks. Epsilon makes the batch off-policy, so the loss takes the
policy's own log-probs, in either of the package's two ways: `reuse` keeps the network's outputs from sampling,
`recompute` samples without gradients and runs the network again on all steps at once. Both are tried with every number
of threads (1, 2, 4 …) for a few iterations; the fastest is then timed from scratch. Prints one line of JSON.
"""

import time

BEGUN = time.perf_counter()

import argparse
import contextlib
import json
import os
from importlib import metadata

import numpy as np
import torch
from gfn.estimators import DiscretePolicyEstimator
from gfn.gflownet import TBGFlowNet
from gfn.gym import HyperGrid
from gfn.preprocessors import KHotPreprocessor
from gfn.samplers import Sampler
from gfn.utils.modules import MLP
from peer_facts import peak_memory_mb

BATCH, WIDTH, DEPTH, RATE, RATE_LOGZ, EPSILON, EPSILON_ITERATIONS = 16, 256, 2, 1e-3, 0.1, 0.1, 30_000
TRIAL = 20  # iterations per trial
REWARD = {"R0": 1e-3, "R1": 0.5, "R2": 2.0}


def build(dim, side, seed, device):
    """The environment, the model with its sampler, and the optimizer."""
    torch.manual_seed(seed)
    env = HyperGrid(ndim=dim, height=side, reward_fn_str="original", reward_fn_kwargs=REWARD, device=device)
    encoding = KHotPreprocessor(height=side, ndim=dim)
    forward = MLP(encoding.output_dim, env.n_actions, hidden_dim=WIDTH, n_hidden_layers=DEPTH, activation_fn="relu")
    backward = MLP(encoding.output_dim, env.n_actions - 1, trunk=forward.trunk)
    ahead = DiscretePolicyEstimator(forward, env.n_actions, preprocessor=encoding)
    back = DiscretePolicyEstimator(backward, env.n_actions, preprocessor=encoding, is_backward=True)
    model = TBGFlowNet(pf=ahead, pb=back, init_logZ=0.0).to(device)
    optimizer = torch.optim.Adam(model.pf_pb_parameters(), lr=RATE)  # the shared trunk is listed once
    optimizer.add_param_group({"params": model.logz_parameters(), "lr": RATE_LOGZ})
    return env, model, Sampler(estimator=ahead), optimizer


def iteration(number, reuse, env, model, sampler, optimizer):
    """One iteration of training: (loss, mean number of steps), both still on the device."""
    epsilon = EPSILON * max(0.0, 1.0 - number / EPSILON_ITERATIONS)
    with contextlib.nullcontext() if reuse else torch.no_grad():
        paths = sampler.sample_trajectories(env, n=BATCH, save_estimator_outputs=reuse, epsilon=epsilon)
    optimizer.zero_grad()
    loss = model.loss(env, paths, recalculate_all_logprobs=not reuse)
    loss.backward()
    optimizer.step()
    return loss.detach(), paths.terminating_idx.float().mean()


def measure(options, reuse, threads, iterations, chunk):
    """Median rate over chunks of the first iterations, of a fresh model."""
    torch.set_num_threads(threads)
    device = torch.device("cpu" if options.device == "cpu" else "cuda")
    parts = build(options.dim, options.side, options.seed, device)
    for number in range(3):
        iteration(number, reuse, *parts)  # the first calls set up the library
    parts = build(options.dim, options.side, options.seed, device)
    times, steps = [], []
    for first in range(0, iterations - chunk + 1, chunk):
        begun = time.perf_counter()
        results = [iteration(number, reuse, *parts) for number in range(first, first + chunk)]
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
        steps.extend(float(length) for _, length in results)
    return {
        "peer": f"torchgfn {metadata.version('torchgfn')}",
        "iterations_per_second": chunk / float(np.median(times)),
        "iterations_per_second_mean": chunk * len(times) / sum(times),
        "log_probs": "reuse" if reuse else "recompute",
        "threads": threads,
        "iterations": chunk * len(times),
        "chunk": chunk,
        "steps_per_trajectory": float(np.mean(steps)),
        "loss": float(results[-1][0]),
        "logZ": float(parts[1].logZ.detach()),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--chunk", type=int, default=25, help="iterations per timing")
    parser.add_argument("--log-probs", choices=["reuse", "recompute"], help="only this way; default: both")
    parser.add_argument("--threads", type=int, help="only this many; default: 1, 2, 4 … up to the cores")
    parser.add_argument("--dim", type=int, default=4)
    parser.add_argument("--side", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.iterations < options.chunk:
        parser.error("--iterations has to be at least --chunk")
    cores = len(os.sched_getaffinity(0))
    counts = [options.threads] if options.threads else [2**power for power in range(cores.bit_length())]
    ways = [options.log_probs == "reuse"] if options.log_probs else [True, False]
    load, started = os.getloadavg()[0], time.perf_counter() - BEGUN
    runs = [measure(options, reuse, threads, TRIAL, TRIAL) for threads in counts for reuse in ways]
    tried = {f"{run['log_probs']}, threads {run['threads']}": run["iterations_per_second"] for run in runs}
    fastest = max(runs, key=lambda run: run["iterations_per_second"])
    best = measure(options, fastest["log_probs"] == "reuse", fastest["threads"], options.iterations, options.chunk)
    names = ("torch", "tensordict", "numpy")
    best |= {
        "tried": tried,
        "device": torch.cuda.get_device_name() if options.device == "gpu" else "cpu",
        "cores": cores,
        "load_before": load,
        "load_after": os.getloadavg()[0],
        "grid": f"{options.side}^{options.dim}",
        "reward": "easy",
        "batch": BATCH,
        "network": f"{DEPTH}x{WIDTH} relu, one trunk",
        "adam": RATE,
        "adam_logZ": RATE_LOGZ,
        "epsilon": [EPSILON, 0.0, EPSILON_ITERATIONS],
        "seed": options.seed,
        "start_seconds": started,
        "peak_memory_mb": peak_memory_mb(),
        **{name: metadata.version(name) for name in names},
    }
    print(json.dumps(best))


if __name__ == "__main__":
    main()
