"""What to try when an agent has not learned to do better than random actions."""

from __future__ import annotations

from math import hypot, isfinite

from xladder.core.statistics import signed
from xladder.families.value.config import ValueConfig

LONGER = 4  # times the steps, and twice the exploration
SHARE = 0.8  # of a run that explores
REPEAT = 16  # steps of one random action: on MountainCar 8 % of random episodes then reach the goal, and else none
UNITS = 64  # of a GRU
EPISODES = "more episodes (`xladder eval --episodes`)"
STEPS = 10  # rewards per target, so that one reward at the end reaches further back


TO_TRY = " To try: "  # what comes before the ideas, which semicolons separate


def advise(config: ValueConfig, score: float, interval: float, random: float, random_interval: float) -> str:
    """A sentence if a score is not above that of random play, by their 95 % intervals; else an empty string."""
    noise = hypot(*(half if isfinite(half) else 0.0 for half in (interval, random_interval)))
    if not isfinite(score) or not isfinite(random) or score - random > noise:
        return ""
    said = f"The return is not above that of random play ({signed(random)})."
    if score > random:
        said = f"The return is above that of random play ({signed(random)}), but by less than their intervals."
    if len(config.world.agents) > 1:
        said += " Of agents that compete that says little: look at each while the others act at random."
    return f"{said}{TO_TRY}{'; '.join([EPISODES] * (score > random) + _ideas(config))}."


def _ideas(config: ValueConfig) -> list[str]:
    """Changes that may help and are not made yet, as flags."""
    c, ideas = config.learner, []
    if config.algorithm == "replay" and config.agent_steps < 2 * config.learning_begins:
        ideas.append(f"an earlier start (`--learner.learning-starts`, now {c.learning_starts:,})")
    if c.epsilon > 0.0 and c.explore_repeat == 1:
        ideas.append(f"exploration that keeps to its actions (`--learner.explore-repeat {REPEAT}`)")
    if c.epsilon > c.epsilon_end and config.explore_steps < SHARE * config.agent_steps:
        ideas.append(f"more exploration (`--learner.epsilon-steps 0 --learner.epsilon-share {SHARE}`)")
    if config.algorithm == "replay" and not c.noisy:
        ideas.append("noise that depends on the state (`--learner.noisy`)")
    if config.algorithm == "replay" and not c.recurrent:
        ideas.append(f"memory, if what matters was seen earlier (`--learner.recurrent {UNITS}`)")
    if config.algorithm == "replay" and c.n_step < STEPS:
        ideas.append(f"rewards that reach further back (`--learner.n-step {STEPS}`)")
    ideas.append(f"a longer run (`--{config.length} {LONGER * getattr(config, config.length)}`)")
    if ":" in config.name:
        ideas.append(f"`xladder check {config.name}`")
    return ideas
