"""What each preset of a value world is, as a line of the help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xladder.worlds import names

ALGORITHMS = {
    "dqn": "DQN: replay memory and target network (Mnih et al. 2015)",
    "double": "DQN with double Q-learning (van Hasselt et al. 2016)",
    "dueling": "double DQN with a dueling network (Wang et al. 2016)",
    "c51": "C51: the return as 51 atoms (Bellemare et al. 2017)",
    "qrdqn": "QR-DQN: the return as fixed quantiles (Dabney et al. 2018)",
    "iqn": "IQN: the return as sampled quantiles (Dabney et al. 2018)",
    "munchausen": "M-DQN: adds the log-policy to the reward (Vieillard et al. 2020)",
    "rainbow": "Rainbow: six extensions of DQN at once (Hessel et al. 2018)",
    "der": "DER: data-efficient Rainbow (van Hasselt et al. 2019)",
    "explore": "repeats random actions 16 times, for rewards that are rare",
    "r2d2": "R2D2: a GRU, replayed in sequences (Kapturowski et al. 2019)",
    "pqn": "PQN: many envs, no replay memory (Gallici et al. 2024)",
    "vdn": "VDN: a team learns the sum of its values (Sunehag et al. 2018)",
}
PROTOCOLS = {
    "nature": "DQN by the rules of Mnih et al. (2015)",
    "dopamine": "DQN by the rules of Dopamine (Castro et al. 2018)",
    "cleanrl": "DQN by the rules of CleanRL's dqn_atari_jax.py",
    "atari100k": "DER by the rules of Atari 100k, as in Dopamine",
}


def about_presets(found: Mapping[str, Any]) -> Mapping[str, str]:
    """What each of a world's presets is; on Atari with the protocol that it follows."""
    about = {"default": _default(found["default"])}
    for name, config in found.items():
        rules = getattr(config, "protocol", None)
        if name in PROTOCOLS:
            about[name] = PROTOCOLS[name]
        elif name in ALGORITHMS:
            about[name] = ALGORITHMS[name] + (f"; protocol {rules}" if rules else "")
    return about


def _default(config: Any) -> str:
    """The learner that is used if no preset is named."""
    c = config.learner
    if names.locate(config.name).source == "atari":
        return f"the protocol {config.protocol}"
    parts = ["PQN" if config.algorithm == "pqn" else "double DQN" if c.double else "DQN"]
    parts += [f"{c.n_step}-step targets"] * (c.n_step > 1) + ["a soft target update"] * (c.tau > 0)
    return f"{parts[0]}, {c.torso} torso" + (f", {' and '.join(parts[1:])}" if parts[1:] else "")
