"""Atari games as workloads: `atari/GAME`, under the protocols of published scores.

A protocol sets emulator, learner and evaluation together, because they affect a score more than the code does.
`nature`: Mnih et al. 2015. `dopamine`: Castro et al. 2018, after Machado et al. 2018. `cleanrl`: Huang et al. 2022.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from xladder.errors import UsageError, unknown
from xladder.families.value import atari_scores
from xladder.families.value.config import LearnerConfig, ValueConfig, ValueWorld, check_torso, members
from xladder.worlds import names

if TYPE_CHECKING:
    from xladder.core.types import Compiled
    from xladder.worlds.atari import AtariXla
    from xladder.worlds.atari_host import AtariEnvs
    from xladder.worlds.envs import EnvSpec

FRAMES_PER_STEP = 4
SHAPE = (84, 84)


@dataclass(frozen=True)
class WorldConfig(ValueWorld):
    """Envs of an Atari game, preprocessed as published: 4 frames per step, max over the last two, grey, 84 × 84."""

    jittable: ClassVar[bool] = False
    name: str = "atari/breakout"
    """Which game; set by the workload's name."""
    num_envs: int = 32
    """Number of parallel envs; with 1, `sequential` and `torch` do what the papers did."""
    stack: int = 4
    """Frames stacked into a state."""
    sticky: float = 0.0
    """Sticky actions: the probability that the previous action is repeated."""
    life_loss: bool = True
    """Losing a life counts as terminal in the targets, while the game goes on."""
    noops: int = 30
    """An episode starts with a random number of no-op frames below this; frames, not steps."""
    fire: bool = True
    """Press FIRE at the start of an episode, in games that need it."""
    cap_frames: int = 108_000
    """Truncate episodes after this many frames; 108,000 are half an hour."""
    threads: int = 0
    """Threads that step the envs; 0 means all cores but two."""

    def spec(self) -> EnvSpec:
        """Frame shape, dtype and number of actions, known without starting the world."""
        from xladder.worlds.atari_host import spec

        return spec(self)

    def inside(self, seed: int) -> AtariXla:
        """The envs, for a compiled program."""
        from xladder.worlds.atari import inside

        return inside(self, seed)

    def on_host(self, num_envs: int, seed: int, compiled: Compiled, first: int = 0) -> AtariEnvs:
        """Envs stepped from the host; `first` is the first one's index, if other processes step the earlier ones."""
        from xladder.worlds.atari_host import on_host

        return on_host(self, num_envs, seed, compiled, first)


@dataclass(frozen=True)
class Config(ValueConfig):
    """A value learner in envs of an Atari game."""

    length: ClassVar[str] = "frames"
    length_per_step: ClassVar[int] = FRAMES_PER_STEP
    world: WorldConfig = field(default_factory=WorldConfig)
    algorithm: Literal["replay"] = "replay"
    """The value learner with a replay memory."""
    protocol: Literal["nature", "dopamine", "cleanrl"] = "cleanrl"
    """The protocol whose published scores a result is compared with; choosing it as a preset also sets its rules."""
    frames: int = 10_000_000
    """Training length: frames summed over envs, 4 per agent step."""
    evaluate_every: int = 0
    """Frames between evaluations; 0 means a tenth of the run."""
    evaluate_episodes: int = 8
    """Episodes per evaluation; 0 turns evaluation off."""
    evaluate_epsilon: float = 0.01
    """Probability of a random action in evaluations."""

    @property
    def longest_game(self) -> int:
        """An upper bound on episode steps: the emulator truncates earlier."""
        return -(-self.world.cap_frames // FRAMES_PER_STEP) + 1

    def check_world(self) -> None:
        """Raise a `UsageError` for settings that the emulator does not support."""
        w = self.world
        names.find_atari(w.name)
        check_torso(self, SHAPE)
        if not 0.0 <= w.sticky < 1.0:
            raise UsageError(f"`--world.sticky` is {w.sticky}, but it has to lie in [0, 1).")
        for flag, count in [("noops", w.noops), ("threads", w.threads)]:
            if not 0 <= count <= 10_000:
                raise UsageError(f"`--world.{flag}` is {count}, but it has to lie between 0 and 10,000.")
        if w.cap_frames < 40:
            raise UsageError(f"`--world.cap-frames` is {w.cap_frames}, but an episode needs 40 or more.")
        if self.frames % FRAMES_PER_STEP:
            raise UsageError(f"`--frames` is {self.frames}, but every agent step takes {FRAMES_PER_STEP} of them.")

    def note(self) -> str:
        """A note to print before the run starts, or an empty string."""
        return f"{self.tick_description}; protocol {self.protocol}"

    def judge(self, score: float, frames: int) -> dict[str, Any]:
        """Compare an evaluation's mean after `frames` frames with human and published scores, ready for JSON.

        `human49` and `human57` are normalised to 0 for random play and 1 for a human, by each table of human scores.
        `placing` is the comparison as a sentence, `verdict` as a word, and `caveats` list differences in method.
        """
        rules = PROTOCOLS[self.protocol]
        placing = atari_scores.place(self.world.name, self.protocol, frames, score)
        verdict, caveats = placing.verdict if placing else "nothing", []
        text = (
            atari_scores.format_placing(placing)
            if placing
            else f"No published score of `{self.world.name}` is on record here."
        )
        other_rules = _differing(self.world, rules.world, "world.", but=("name", "num_envs", "threads"))
        if self.evaluate_epsilon != rules.evaluate_epsilon:
            other_rules.append(f"`evaluate-epsilon` {self.evaluate_epsilon}")
        if verdict != "nothing" and other_rules:
            verdict = "nothing"
            text = f"Nothing comparable is published: the rules are not {self.protocol}'s ({', '.join(other_rules)})."
        if verdict != "nothing":
            reported = atari_scores.REPORTED[self.protocol]
            ours = "that of the final agent" if reported == "best evaluation" else "the mean of an evaluation"
            caveats.append(f"The published score is the {reported}, the one here is {ours}: they differ in method.")
            if self.protocol == "cleanrl":
                caveats.append(
                    "CleanRL presses FIRE after each lost life; here it is pressed only when an episode begins."
                )
            changed = _differing(self.learner, rules.learner, "learner.")
            if changed:
                caveats.append(
                    f"The published score is of DQN with {self.protocol}'s settings; changed here: {_some(changed)}."
                )
        return atari_scores.normalised(self.world.name, score) | {
            "verdict": verdict,
            "placing": text,
            "caveats": caveats,
        }


def _differing(ours: Any, theirs: Any, prefix: str, but: tuple[str, ...] = ()) -> list[str]:
    """The flags whose values differ between two groups of settings, with our values."""
    changed = [f.name for f in fields(ours) if f.name not in but and getattr(ours, f.name) != getattr(theirs, f.name)]
    return [f"`{prefix}{name.replace('_', '-')}` {getattr(ours, name)}" for name in changed]


def _some(words: list[str], most: int = 3) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


NATURE = Config(
    world=WorldConfig(sticky=0.0, life_loss=True, fire=False),
    learner=LearnerConfig(
        torso="nature",
        width=512,
        lr=2.5e-4,
        optimiser="rmsprop",
        optimiser_eps=0.01 / 32**2,
        loss="huber",
        clip=float("inf"),
        clip_rewards=True,
        batch_size=32,
        memory=1_000_000,
        learning_starts=50_000,
        steps_per_update=4,
        target_update_period=40_000,
        epsilon_end=0.1,
        epsilon_steps=1_000_000,
        explore_from=50_000,
    ),
    protocol="nature",
    evaluate_epsilon=0.05,
)
DOPAMINE = replace(
    NATURE,
    world=WorldConfig(sticky=0.25, life_loss=False, noops=0, fire=False),
    learner=replace(
        NATURE.learner,
        lr=6.25e-5,
        optimiser="adam",
        optimiser_eps=1.5e-4,
        loss="squared",
        learning_starts=20_000,
        target_update_period=8000,
        epsilon_end=0.01,
        epsilon_steps=250_000,
        explore_from=20_000,
    ),
    protocol="dopamine",
    evaluate_epsilon=0.001,
)
CLEANRL = replace(
    NATURE,
    world=replace(NATURE.world, fire=True),
    learner=replace(
        NATURE.learner,
        lr=1e-4,
        optimiser="adam",
        optimiser_eps=1e-8,
        loss="squared",
        learning_starts=80_000,
        target_update_period=1000,
        epsilon_end=0.01,
        epsilon_steps=0,
        epsilon_share=0.1,
        explore_from=0,
    ),
    protocol="cleanrl",
    evaluate_epsilon=0.01,
)
PROTOCOLS = {"nature": NATURE, "dopamine": DOPAMINE, "cleanrl": CLEANRL}


def presets(place: names.Place, protocol: str | None = None) -> dict[str, Any]:
    """The presets of a game: the protocols, and the family's members under the rules of one of them."""
    if protocol is not None and protocol not in PROTOCOLS:
        raise unknown("protocol", protocol, PROTOCOLS)
    game = {k: replace(c, world=replace(c.world, name=place.name)) for k, c in PROTOCOLS.items()}
    rules = game[protocol or "cleanrl"]
    return {"default": rules, **game, **members(rules)}
