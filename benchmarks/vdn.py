"""VDN beside independent learners: the team's return after training, over seeds, with everything else the same.

python benchmarks/vdn.py --worlds marl/examples.own_gridworld:ButtonDoor --steps 40000 --seeds 4 --json FILE

Three learners with the settings of the preset `vdn`: a team with one network (vdn), agents that learn alone with one
network (iql, shared), and agents that learn alone with a network each (iql). An env's steps count once for every
learner: with a shared network, settings that count steps of agents are multiplied by their number.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from rounds import measured_on

from xladder import devices
from xladder.families.value import presets as named
from xladder.training import train
from xladder.user_code import allow

LEARNERS = {
    "vdn": {"team": True, "shared": True},
    "iql, shared": {"team": False, "shared": True},
    "iql": {"team": False, "shared": False},
}
PER_STEP = ("memory", "learning_starts", "steps_per_update", "target_update_period")
EPISODES = 64


def settings(world, learner, steps, protocol):
    """The preset's settings for one of the learners, with as many env steps and updates."""
    config = named.presets(world, protocol)["vdn"]
    changed = replace(config, world=replace(config.world, **LEARNERS[learner]), steps=steps)
    each = changed.world.rows // config.world.num_envs
    counts = {name: getattr(config.learner, name) * each for name in PER_STEP}
    return replace(changed, learner=replace(changed.learner, **counts), steps=steps * each, evaluate_episodes=0)


def measure(world, learner, options):
    """Train all seeds of a learner at once, and evaluate them."""
    config = settings(world, learner, options.steps, options.protocol)
    begun = time.perf_counter()
    result = train(world, "fused", config=config, seeds=options.seeds, seed=options.seed, progress=False)
    seconds = time.perf_counter() - begun
    score = result.evaluate(EPISODES)
    tenth = result.metrics["return"].shape[1] // 10
    last = np.nanmean(result.metrics["return"][:, -tenth:], axis=1)
    return {
        "world": world,
        "learner": learner,
        "env_steps": options.steps,
        "per_seed": score["per_seed"],
        "mean": score["mean_return"],
        "ci95": score["ci95"],
        "random": score["random_return"],
        "training_return_last_tenth": [float(x) for x in last],
        "seconds": seconds,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default="jaxmarl/MPE_simple_spread_v3,marl/examples.own_gridworld:ButtonDoor")
    parser.add_argument("--learners", default=";".join(LEARNERS), help="separated by semicolons")
    parser.add_argument("--protocol", help="jaxmarl for JaxMARL's own settings")
    parser.add_argument("--steps", type=int, default=400_000, help="env steps")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    allow("examples.own_gridworld")
    about, rows = measured_on(devices.find(None)), []
    for world in options.worlds.split(","):
        for learner in options.learners.split(";"):
            rows.append(measure(world, learner, options))
            row = rows[-1]
            print(
                f"{world:<40} {learner:<12} {row['mean']:>8.2f} ± {row['ci95']:<6.2f} random {row['random']:>8.2f}  "
                f"{row['seconds']:>6.0f} s",
                flush=True,
            )
            if options.json:
                options.json.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
