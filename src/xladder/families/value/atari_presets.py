"""Atari games as workloads: `atari/GAME`, under the protocols of published scores.

A protocol sets emulator, learner and evaluation together, because they affect a score more than the code does. The
numbers and their sources are in `published_atari.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from xladder.errors import UsageError
from xladder.families.value import atari_scores, published
from xladder.families.value.config import ValueConfig, ValueWorld, check_torso
from xladder.families.value.learner_config import MEMBERS
from xladder.families.value.published import PublishedAgent
from xladder.families.value.published_atari import CLEANRL, DOPAMINE, LEFT_OUT, NATURE
from xladder.families.value.published_atari100k import AGENTS, DER
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
    fire_after_life: bool = False
    """Press FIRE after each lost life, too, in games that have the button."""
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
    protocol: Literal["nature", "dopamine", "cleanrl", "atari100k"] = "cleanrl"
    """The protocol whose published scores a result is compared with; choosing it as a preset also sets its rules."""
    frames: int = 10_000_000
    """Training length: frames summed over envs, 4 per agent step."""
    evaluate_every: int = 0
    """Frames between evaluations during training; 0 means a tenth of the run."""
    evaluate_episodes: int = 8
    """Episodes of each evaluation during training; 0 makes none. `--eval-episodes` is for the one at the end."""
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
            changed = _differing(self.learner, rules.learner, "learner.")
            if changed:
                caveats.append(
                    f"The published score is of {'DER' if self.protocol == DER.protocol else 'DQN'} with "
                    f"{self.protocol}'s settings; changed here: {_some(changed)}."
                )
        if agent := self.agent:
            different = " ".join(agent.differences)
            caveats.append(f"The settings are those of {agent.source}. Deliberately different: {different}")
        return atari_scores.normalised(self.world.name, score) | {
            "verdict": verdict,
            "placing": text,
            "caveats": caveats,
        }

    @property
    def agent(self) -> PublishedAgent | None:
        """The published agent whose rules and learner these are, if there is one."""
        return next((agent for agent in AGENTS if _is_same(agent.applied_to(Config()), self)), None)


def _is_same(theirs: Any, ours: Any) -> bool:
    """Whether two configs have the same learner and rules; how long and in how many envs may differ."""
    world = replace(theirs.world, name=ours.world.name, num_envs=ours.world.num_envs, threads=ours.world.threads)
    return (theirs.protocol, theirs.learner, world) == (ours.protocol, ours.learner, ours.world)


def _differing(ours: Any, theirs: Any, prefix: str, but: tuple[str, ...] = ()) -> list[str]:
    """The flags whose values differ between two groups of settings, with our values."""
    changed = [f.name for f in fields(ours) if f.name not in but and getattr(ours, f.name) != getattr(theirs, f.name)]
    return [f"`{prefix}{name.replace('_', '-')}` {getattr(ours, name)}" for name in changed]


def _some(words: list[str], most: int = 3) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


RULES = (NATURE, DOPAMINE, CLEANRL, DER)
PROTOCOLS: dict[str, Config] = {agent.protocol: agent.applied_to(Config()) for agent in RULES}
"""The rules of each protocol, with the agent that its published scores are of: DQN, or DER of `atari100k`."""
FIRST = ("cleanrl", "dopamine", "nature", "atari100k")
"""Which protocol an algorithm is taken from if none is named: the first of these that has it."""


def presets(place: names.Place, protocol: str | None = None) -> dict[str, Any]:
    """The presets of a game: the protocols, and the published agents of one of them, or of the first that has each."""
    start, named = Config(world=WorldConfig(name=place.name)), [*MEMBERS, DER.algorithm]
    if protocol is not None:
        published.check_protocol(place.name, AGENTS, protocol)
    game = {name: replace(c, world=replace(c.world, name=place.name)) for name, c in PROTOCOLS.items()}
    found = {"default": game[protocol or FIRST[0]], **game}
    if protocol is not None:
        own = published.under(AGENTS, protocol, found | published.presets(AGENTS, protocol, start), named)
        return published.Presets(own, own.absent | LEFT_OUT)
    by_protocol = [published.presets(AGENTS, name, start) for name in FIRST]
    agents = {name: next(agents[name] for agents in by_protocol if name in agents) for name in named}
    return published.Presets(found | agents, LEFT_OUT)
