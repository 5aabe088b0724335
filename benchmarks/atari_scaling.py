"""Atari over several GPUs: what one GPU and its cores do, measured, and a model of eight from it.

    python benchmarks/atari_scaling.py --parts inputs model [--envs 160] [--shares 1 2 4 8] [--json FILE]
    python benchmarks/atari_scaling.py --parts sharing [--json FILE]

*Inputs*: agent steps per second of the emulators alone; milliseconds to choose actions and store a step, for each
device's part of the envs; milliseconds per update, for each device's part of the batch; bytes of the gradients; and,
to see what the model is worth, the rate of `parallel`, which it predicts for one GPU.

*Model*: n GPUs, each with as many cores as this machine, and as many emulators, or with its part of them. The envs step
while the devices learn, so a tick takes

    max(envs / rate, updates × (update + exchange)) + steps × choose,
    exchange = 2 (n − 1)/n × bytes / bandwidth + 2 (n − 1) × latency

with an assumed bandwidth and latency between the GPUs of a box. Two ways to use n GPUs are modelled: the same learner
(its envs and batches are shared), and n times the envs with n times the batch, so that every GPU does what one does.

*Sharing*: two processes that share one GPU, each with half of the envs: alone, without exchange, and as one run on
`hosts`. NCCL, which carries JAX's collectives between GPUs, refuses two processes on one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from rounds import measured_on

from xladder import devices
from xladder.cli.launch import free_ports
from xladder.core.compiling import compiled
from xladder.families.value.overlapped import pack
from xladder.plans import plan
from xladder.rungs import parallel
from xladder.worlds import atari_host
from xladder.worlds.envs import Step

BANDWIDTH, LATENCY = 450e9, 5e-6  # assumed: bytes per second and seconds per step of a ring, GPUs of one box
BATCH = 32
WARM, TIMED = 5, 25


def config_of(game: str, envs: int, batch: int, steps_per_update: int) -> object:
    """Protocol `cleanrl`, learning from the first ticks on."""
    learner = {
        "batch_size": batch,
        "steps_per_update": steps_per_update,
        "learning_starts": 4 * envs + 64,
        "memory": 100_000 // envs * envs,
    }
    return plan(
        f"atari/{game}", "parallel", world={"num_envs": envs}, learner=learner, frames=4 * envs * 100_000,
        evaluate_episodes=0,
    ).config  # fmt: skip


def median(call: object) -> float:
    """Median seconds of a blocking call."""
    times = []
    for _ in range(WARM + TIMED):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return float(np.median(times[WARM:]))


def emulators(game: str, envs: int, seconds: float) -> float:
    """Agent steps per second of the emulators alone, with random actions."""
    worlds = atari_host.on_host(config_of(game, envs, BATCH, 4).world, envs, 0, compiled)
    worlds.reset()
    rng, count, begun = np.random.default_rng(0), 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        worlds.send(rng.integers(0, worlds.spec.actions, envs))
        worlds.recv()
        count += envs
    rate = count / (time.perf_counter() - begun)
    worlds.close()
    return rate


def choosing(run: object, envs: int) -> float:
    """Seconds to send a step of all envs to the device, store it, choose actions and fetch them."""
    loop, spec = run.loop, run.loop.program.spec
    flags = np.zeros(envs, bool)
    answer = Step(np.zeros((envs, *spec.shape), spec.dtype), np.zeros(envs, np.float32), flags, flags, flags)
    held = [loop._choose(loop.program, loop.run, loop.times(0, 0))]

    def once() -> None:
        taken = np.asarray(held[0])[None, 0]
        loop.run, held[0] = loop._remember_and_choose(loop.times(0, 1), loop.run, taken, *pack(answer))
        jax.block_until_ready(held[0])

    return median(once)


def learning(run: object) -> float:
    """Seconds per update."""
    tick = run.loop.tick + 100  # one that learns
    found = median(lambda: jax.block_until_ready(run.loop.learn_if_ready(tick)))
    return found / run.loop.config.updates_per_tick


def rate(run: object, seconds: float) -> float:
    """Agent steps per second of a run on `parallel`."""
    run.advance(30)
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        run.advance(20)
        count += 20
    return count * run.loop.config.per_tick / (time.perf_counter() - begun)


def measure(options: argparse.Namespace) -> dict:
    """The inputs of the model."""
    game, envs, per = options.game, options.envs, options.steps_per_update
    found: dict = {"envs": envs, "batch": BATCH, "steps_per_update": per, "updates_per_tick": max(1, envs // per)}
    found["emulator_rate"] = emulators(game, envs, options.seconds)
    print(f"emulators alone, {envs} envs: {found['emulator_rate']:,.0f} agent steps/s", flush=True)
    found["choose_seconds"], found["update_seconds"] = {}, {}
    for n in options.shares:
        # As many updates per tick as of the whole, if there are enough envs; a program of several has no gaps.
        run = parallel.start(config_of(game, envs // n, BATCH // n, max(1, per // n)), [0])
        if n == 1:
            found["parallel_rate"] = rate(run, options.seconds)
            found["gradient_bytes"] = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(run.params()))
            print(f"parallel: {found['parallel_rate']:,.0f} agent steps/s", flush=True)
            print(f"gradients: {found['gradient_bytes'] / 1e6:.2f} MB", flush=True)
        else:
            run.advance(6)
        each, choose = learning(run), choosing(run, envs // n)
        found["update_seconds"][n], found["choose_seconds"][n] = each, choose
        run.loop.close()
        print(
            f"1/{n} of the envs and of the batch: choosing {1e3 * choose:.3f} ms per step, "
            f"learning {1e3 * each:.3f} ms per update",
            flush=True,
        )
    return found


def model(inputs: dict) -> list[dict]:
    """Agent steps per second of n GPUs, predicted; n = 1 is what `parallel_rate` is to be compared with."""
    rows = []
    for n in inputs["update_seconds"]:
        exchange = 2 * (n - 1) / n * inputs["gradient_bytes"] / BANDWIDTH + 2 * (n - 1) * LATENCY
        for use in ("same learner", "n times the batch"):
            share = n if use == "same learner" else 1
            envs = inputs["envs"] * n // share  # in all
            emulating = envs / n / inputs["emulator_rate"]
            updating = inputs["updates_per_tick"] * (inputs["update_seconds"][share] + exchange)
            tick = max(emulating, updating) + inputs["choose_seconds"][share]
            rows.append({"gpus": n, "use": use, "envs": envs, "batch": inputs["batch"] * n // share})
            rows[-1] |= {"tick_seconds": tick, "steps_per_second": envs / tick, "exchange_seconds": exchange}
            rows[-1]["limit"] = "emulators" if emulating > updating else "learner"
            print(
                f"{n} GPUs, {use:<18} {envs:5} envs, batch {rows[-1]['batch']:3}: {envs / tick:9,.0f} agent steps/s, "
                f"limited by the {rows[-1]['limit']}",
                flush=True,
            )
    return rows


ALONE = """
import sys, json
sys.path.insert(0, sys.argv[1])
import atari_scaling
config = atari_scaling.config_of(sys.argv[2], int(sys.argv[3]), atari_scaling.BATCH, int(sys.argv[4]))
print(json.dumps(atari_scaling.rate(atari_scaling.parallel.start(config, [0]), float(sys.argv[5]))))
"""


def sharing(options: argparse.Namespace) -> dict:
    """Two processes on this machine's device: two runs of half the envs, and one run of both."""
    half, here = options.envs // 2, str(Path(__file__).parent)
    words = [here, options.game, str(half), str(options.steps_per_update), str(options.seconds)]
    environ = dict(os.environ)
    both = [
        subprocess.Popen([sys.executable, "-c", ALONE, *words], stdout=subprocess.PIPE, text=True, env=environ)
        for _ in range(2)
    ]
    rates = [json.loads(process.communicate(timeout=150)[0].splitlines()[-1]) for process in both]
    print(f"two processes, each its own run: {sum(rates):,.0f} agent steps/s in all", flush=True)
    return {"apart_steps_per_second": rates, **one_run(options, environ)}


def one_run(options: argparse.Namespace, environ: dict) -> dict:
    """One run on `hosts`, of two processes that see the same device."""
    frames = 4 * options.envs * max(40, int(10_000 * options.seconds) // options.envs)
    train = f"""train atari/{options.game} --frames {frames} --world.num-envs {options.envs}
        --learner.steps-per-update {options.steps_per_update} --learner.memory {100 * options.envs}
        --learner.learning-starts {8 * options.envs} --evaluate-episodes 0 --eval-episodes 0 --checkpoint-every 0
        --device {jax.devices()[0].platform} --rung hosts --coordinator 127.0.0.1:{free_ports()} --num-hosts 2"""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "xladder.cli.main", *train.split(), "--out", f"{folder}/run"]
        processes = [
            subprocess.Popen(
                [*words, "--host-id", str(number)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=environ,
            )
            for number in range(2)
        ]
        try:
            said = [process.communicate(timeout=options.patience)[0] for process in processes]
        except subprocess.TimeoutExpired:
            said = [f"no answer in {options.patience:g} s"] * 2
        finally:
            for process in processes:
                process.kill()
        codes, timings = [process.wait() for process in processes], Path(f"{folder}/run/timings.json")
        if any(codes) or not timings.exists():
            print(f"two processes, one run: exit codes {codes}. {said[0][-400:]}", flush=True)
            return {"hosts_exit_codes": codes, "hosts_said": [text[-1000:] for text in said]}
        each = next(value for name, value in json.loads(timings.read_text()).items() if name.startswith("seconds_per_"))
    print(f"two processes, one run: {options.envs / each:,.0f} agent steps/s", flush=True)
    return {"hosts_exit_codes": codes, "hosts_steps_per_second": options.envs / each}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", default=["inputs", "model", "sharing"])
    parser.add_argument("--game", default="pong")
    parser.add_argument("--envs", type=int, default=160, help="divisible by 8")
    parser.add_argument("--shares", nargs="*", type=int, default=[1, 8], help="numbers of GPUs; 1 is needed")
    parser.add_argument("--steps-per-update", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each rate")
    parser.add_argument("--patience", type=float, default=70.0, help="seconds for the run of two processes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # two processes share the GPU
    found: dict = {}
    if "inputs" in options.parts:
        found["inputs"] = measure(options)
    if "model" in options.parts:
        found["model"] = {"bandwidth": BANDWIDTH, "latency": LATENCY, "rows": model(found["inputs"])}
    if "sharing" in options.parts:
        found["sharing"] = sharing(options)
    if options.json:
        metadata = {"game": options.game, **found, **measured_on(devices.find(None))}
        options.json.write_text(json.dumps(metadata, indent=2) + "\n")


if __name__ == "__main__":
    main()
