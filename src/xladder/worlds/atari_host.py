"""Envs of an Atari game on the host: ale-py's emulators, which step in their own threads.

Frames are preprocessed as published (Mnih et al. 2015): an action is repeated for 4 frames, and the pixelwise maximum
of the last 2 is kept, in grey, 84×84. The replay memory stacks frames, and the learner clips rewards.

Shapes: N envs, T steps, F frames per state, H × W pixels of the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

from xladder.core.packages import missing_extra
from xladder.devices import cores
from xladder.worlds.envs import EnvSpec, Step, env_seeds
from xladder.worlds.names import find_atari

SIDE = 84
SKIP = 4
FULL_CAP = 108_000  # frames: half an hour of play, or 27,000 steps
ACTION_LOG_STEPS = 2_000  # an env's first reset after this has a new seed; fewer: less to replay, more slow resets


class Options(TypedDict, total=False):
    """Options of a game; `open_emulator` has the defaults."""

    sticky: float
    """Probability that the emulator repeats the previous action, per frame (sticky actions)."""
    noops: int
    """An episode begins with fewer than this many no-op frames, a random number."""
    life_loss: bool
    """Whether the loss of a life counts as `terminated`; the episode goes on either way."""
    cap_frames: int
    """An episode is truncated after this many frames."""
    full_actions: bool
    """Use all 18 actions instead of the game's minimal set."""
    fire: bool
    """Whether to press fire at the start of games that wait for it."""
    fire_after_life: bool
    """Whether fire is pressed after each lost life, too, in games that have the button (`AtariEnvs.forced`)."""
    num_threads: int
    """Threads of the emulators; 0 means one per core. It affects speed only."""


class ActionLog(NamedTuple):
    """The actions of N envs since their last seeds: enough to reach their current states again."""

    seeds: np.ndarray  # int64 [N]
    renewals: np.ndarray  # int32 [N]: how many new seeds each has had
    steps: np.ndarray  # int32 [N]: steps since then
    actions: np.ndarray  # int8 [N, most]


class AtariEnvs:
    """N envs of a game, such as `breakout` or `atari/SpaceInvaders`; see `envs.HostEnvs`.

    Between `send` and `recv` the emulators run in the background. They cannot be saved, but their episodes can be
    replayed: an env gets a new seed at its first reset after `ACTION_LOG_STEPS` steps, and its actions since then are
    logged.

    Args:
        game: name of the game.
        num_envs: N.
        seed: seed of the run.
        first: number of the first env, where other processes have those before it.
        options: see `Options`.
    """

    def __init__(self, game: str, num_envs: int, seed: int, first: int = 0, **options: Unpack[Options]):
        self.num_envs, self._first = num_envs, first
        self._fire = fire_button(game, options)
        self._emulator: Any = open_emulator(game, num_envs, **options)
        self._seed, self._sent = seed, np.zeros(num_envs, np.int32)
        self._before: Any = None
        self._lives, self._lost = np.zeros(num_envs, np.int32), np.zeros(num_envs, bool)
        most = ACTION_LOG_STEPS + options.get("cap_frames", FULL_CAP) // SKIP + 2
        self._action_log = ActionLog(
            env_seeds(seed, num_envs, first=first),
            np.zeros(num_envs, np.int32),
            np.zeros(num_envs, np.int32),
            np.zeros((num_envs, most), np.int8),
        )
        self.spec = emulator_spec(self._emulator)

    def reset(self) -> np.ndarray:
        """Reset all envs; returns the first frames [N, 84, 84]."""
        self._action_log.seeds[:] = env_seeds(self._seed, self.num_envs, first=self._first)
        self._action_log.renewals[:] = self._action_log.steps[:] = 0
        return self._begin(np.ones(self.num_envs, bool))

    @property
    def forced(self) -> np.ndarray | None:
        """int [N]: the action that an env has to take now, or −1 where it is free; None where all always are."""
        return None if self._fire is None else np.where(self._lost, self._fire, -1)

    def send(self, actions: np.ndarray) -> None:
        """Start a step of every env; actions int [N]."""
        self._sent = np.asarray(actions, np.int32)
        self._emulator.send(self._sent)

    def recv(self) -> Step:
        """Wait for the step that `send` started."""
        stacks, rewards, terminated, truncated, info = self._emulator.recv()
        before, self._before = self._before, frames_before(info)
        frames, is_first = stacks[:, 0], self._before != before
        self._count_lives(info, is_first)
        action_log, each = self._action_log, np.arange(self.num_envs)
        action_log.actions[each, action_log.steps] = self._sent
        action_log.steps[:] += 1
        full = is_first & (action_log.steps >= ACTION_LOG_STEPS)
        if full.any():
            action_log.renewals[full] += 1
            action_log.seeds[full] = env_seeds(self._seed, self.num_envs, action_log.renewals, self._first)[full]
            action_log.steps[full] = 0
            frames = self._begin(full)
        return Step(frames, rewards.astype(np.float32), terminated, truncated & ~terminated, is_first)

    def place(self) -> ActionLog:
        """The action log that leads to the current states."""
        return self._action_log

    def go_to(self, action_log: ActionLog, steps: int = 0) -> np.ndarray:
        """Replay an action log. Returns the current frames [N, 84, 84]."""
        self._action_log = ActionLog(*(np.array(column) for column in action_log))
        longest = int(self._action_log.steps.max())
        begins = longest - self._action_log.steps
        frames = self._begin(np.ones(self.num_envs, bool))
        for step in range(longest):
            if step and (begins == step).any():
                self._begin(begins == step)
            # An env whose log has not started yet takes arbitrary actions: it is reset before it starts.
            place = np.maximum(step - begins, 0)
            self._emulator.send(self._action_log.actions[np.arange(self.num_envs), place].astype(np.int32))
            stacks, *_, info = self._emulator.recv()
            before, self._before = self._before, frames_before(info)
            frames = stacks[:, 0]
            self._count_lives(info, self._before != before)
        if longest and (begins == longest).any():
            frames = self._begin(begins == longest)
        return frames

    def state(self) -> dict[str, Any]:
        """The state to resume from."""
        return self._action_log._asdict()

    def take_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state, by replaying the action log."""
        self.go_to(ActionLog(**state))

    def _begin(self, chosen: np.ndarray) -> np.ndarray:
        """Reset the chosen envs, bool [N], with their seeds. Returns the frames of all envs."""
        stacks, info = self._emulator.reset(seed=self._action_log.seeds[chosen], options={"reset_mask": chosen})
        self._before = frames_before(info)
        self._lives, self._lost = np.where(chosen, info["lives"], self._lives), self._lost & ~chosen
        frames: np.ndarray = stacks[:, 0]
        return frames

    def _count_lives(self, info: Mapping[str, Any], is_first: np.ndarray) -> None:
        """Note which envs lost a life in a step, and how many each has left."""
        self._lost = (info["lives"] < self._lives) & ~is_first
        self._lives = np.array(info["lives"])

    def close(self) -> None:
        """Stop the emulators' threads."""
        self._emulator = None


class RecordedGame(NamedTuple):
    """One recorded episode."""

    screens: np.ndarray  # uint8 [T + 1, H, W, 3]: the screen before each step, and the last
    actions: np.ndarray  # int64 [T]
    rewards: np.ndarray  # float32 [T]
    over: bool  # whether it reached its end


def play_rgb(
    game: str,
    policy: Callable[[np.ndarray], int],
    seed: int,
    *,
    frames_per_state: int = 4,
    most_steps: int = 3_000,
    **options: Unpack[Options],
) -> RecordedGame:
    """Record one episode for a video.

    The policy sees what env 0 of `AtariEnvs` shows for the same seed and actions, with zeros before the first frame. A
    screen takes 100 kB per step, so recording stops after `most_steps`.

    Args:
        game: name of the game.
        policy: maps uint8 [F, 84, 84], the newest frame last, to an action.
        seed: seed of the env.
        frames_per_state: F.
        most_steps: steps after which recording stops.
        options: see `Options`.
    """
    options = {**options, "life_loss": False, "num_threads": 1}
    # Two emulators in lock step: one preprocessed for the policy, one in colour.
    seen = AtariEnvs(game, 1, seed, **options)
    shown = open_emulator(game, 1, size=screen_size(game), colour=True, **options)
    try:
        state = np.zeros((frames_per_state, SIDE, SIDE), np.uint8)
        state[-1] = seen.reset()[0]
        screens = [shown.reset(seed=env_seeds(seed, 1))[0][0, 0]]
        actions: list[int] = []
        rewards: list[float] = []
        over = False
        while not over and len(actions) < most_steps:
            forced = -1 if seen.forced is None else int(seen.forced[0])
            actions.append(int(policy(state.copy())) if forced < 0 else forced)
            chosen = np.array(actions[-1:], np.int32)
            seen.send(chosen)
            step, colours = seen.recv(), shown.step(chosen)[0]
            state = np.concatenate([state[1:], step.frame])
            screens.append(colours[0, 0])
            rewards.append(float(step.reward[0]))
            over = bool(step.terminated[0] or step.truncated[0])
        return RecordedGame(np.stack(screens), np.array(actions), np.array(rewards, np.float32), over)
    finally:
        seen.close()


def action_names(game: str, full_actions: bool = False) -> tuple[str, ...]:
    """The names of a game's actions, such as NOOP and UPFIRE."""
    console = _load(game)
    chosen = console.getLegalActionSet() if full_actions else console.getMinimalActionSet()
    return tuple(action.name for action in chosen)


def fire_button(game: str, options: Options) -> int | None:
    """The action that is forced after each lost life; None if none is, by the options or because the game has none."""
    if not options.get("fire_after_life"):
        return None
    names = action_names(game, options.get("full_actions", False))
    return names.index("FIRE") if "FIRE" in names else None


def minimal_actions(game: str) -> int:
    """Number of actions in a game's minimal set."""
    return len(action_names(game))


def screen_size(game: str) -> tuple[int, int]:
    """Height and width of a game's screen: 210 × 160, with few exceptions."""
    height, width = _load(game).getScreenDims()
    return height, width


def open_emulator(
    game: str,
    num_envs: int,
    *,
    sticky: float = 0.0,
    noops: int = 30,
    life_loss: bool = False,
    cap_frames: int = FULL_CAP,
    full_actions: bool = False,
    fire: bool = True,
    fire_after_life: bool = False,
    num_threads: int = 0,
    size: tuple[int, int] = (SIDE, SIDE),
    colour: bool = False,
) -> Any:
    """ale-py's `AtariVectorEnv` with one frame per observation and unclipped rewards; see `Options`.

    Whoever steps it presses fire after a lost life.
    """
    game = find_atari(game)
    _import_ale()
    try:
        from ale_py.vector_env import AtariVectorEnv
    except ImportError as error:
        raise missing_extra("gymnasium", "gym") from error
    return AtariVectorEnv(
        game,
        num_envs,
        num_threads=min(num_threads, num_envs),
        max_num_frames_per_episode=cap_frames,
        repeat_action_probability=sticky,
        full_action_space=full_actions,
        img_height=size[0],
        img_width=size[1],
        grayscale=not colour,
        stack_num=1,
        frameskip=SKIP,
        noop_max=noops,
        life_loss_info=life_loss,
        reward_clipping=False,
        use_fire_reset=fire,
    )


def emulator_spec(emulator: Any) -> EnvSpec:
    """The spec of an open emulator."""
    return EnvSpec((SIDE, SIDE), np.dtype(np.uint8), int(emulator.single_action_space.n), 255)


def frames_before(info: Mapping[str, Any]) -> Any:
    """int32 [N]: frames of earlier episodes. It changes exactly when an episode begins.

    `terminated` does not show that, since it may include lost lives; nor do lives, which some games do not have.
    """
    return info["frame_number"] - info["episode_frame_number"]


def _import_ale() -> Any:
    try:
        import ale_py
    except ImportError as error:
        raise missing_extra("ale-py", "atari") from error
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # otherwise it prints a greeting to stderr
    return ale_py


def _load(game: str) -> Any:
    """A single emulator with the game loaded."""
    game = find_atari(game)
    console = _import_ale().ALEInterface()
    from ale_py import roms

    console.loadROM(roms.get_rom_path(game))
    return console


@cache
def spec(world: Any) -> EnvSpec:
    """Shape of the frames and number of actions of a configured game."""
    return EnvSpec((SIDE, SIDE), np.dtype(np.uint8), minimal_actions(world.name), 255)


def on_host(world: Any, num_envs: int, seed: int, compiled: Any, first: int = 0) -> AtariEnvs:
    """Envs of a configured game, on the host."""
    return AtariEnvs(world.name, num_envs, seed, first, **options(world))


def options(world: Any) -> Options:
    """The emulator options of a configured game."""
    return Options(
        sticky=world.sticky,
        noops=world.noops,
        life_loss=world.life_loss,
        cap_frames=world.cap_frames,
        fire=world.fire,
        fire_after_life=world.fire_after_life,
        num_threads=world.threads or max(1, cores() - 2),  # the thread that drives the device needs a core, too
    )
