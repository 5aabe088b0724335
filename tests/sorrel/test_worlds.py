"""Our worlds in lock step with the real sorrel's: its draws are replaced by ours, both are given the same actions, and
boards, observations and rewards have to be the same, turn by turn.

The draws are replaced where sorrel makes them, in `numpy.random`, so everything else is its own code. Needs sorrel
1.6.0, which needs Python 3.12.
"""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xladder.families.multi_agent import cleanup_presets, iowa_presets, parity, tag_presets, treasurehunt_presets
from xladder.nets.codes import encode
from xladder.worlds.cleanup import CLEAN, OLD_CLEAN, OLD_ZAP, ZAP

pytestmark = pytest.mark.slow
sorrel = pytest.importorskip("sorrel", reason="sorrel is not installed")

EPOCHS = 4


class Replaced:
    """`numpy.random.random` and `numpy.random.choice`, answered by the test."""

    def __init__(self, monkeypatch):
        self.random: Callable[[tuple], float] = lambda place: 1.0
        self.choices: list = []
        self.place: tuple = ()
        monkeypatch.setattr(np.random, "random", lambda: self.random(self.place))
        monkeypatch.setattr(np.random, "choice", self._choice)

    def _choice(self, among, size=None, replace=True):
        answer = self.choices.pop(0) if size is not None or np.ndim(among) == 0 else self.pick(among)
        return answer(among) if callable(answer) else answer

    def pick(self, among):
        """An entity that appears."""
        raise AssertionError("nothing should appear")

    def follow(self, monkeypatch, *kinds):
        """Note which entity is asking, for all entities of these classes."""
        for kind in kinds:
            original = kind.transition

            def transition(entity, world, original=original):
                self.place = entity.location
                original(entity, world)

            monkeypatch.setattr(kind, "transition", transition)


class Record:
    """What sorrel's agents see and get, while they do as they are told."""

    def __init__(self, env):
        self.env, self.states, self.rewards, self.actions = env, [], [], []
        for agent in env.agents:
            agent.get_action = lambda state: (self.states.append(np.ravel(state)), self.actions.pop(0))[1]
            agent.act = lambda world, action, act=agent.act: self._keep(act(world, action))
            agent.add_memory = lambda *transition: None  # its buffer is sized for another view

    def _keep(self, reward):
        self.rewards.append(reward)
        return reward

    def turn(self, actions):
        """Take a turn. Returns what the agents saw and got."""
        self.states, self.rewards, self.actions = [], [], [int(action) for action in actions]
        self.env.take_turn()
        return np.stack(self.states), np.array(self.rewards)


def make(presets, settings):
    """sorrel's own environment with these settings, and small networks, which are not used."""
    from xladder.sorrel import example_env

    learner = replace(presets.DEFAULT.learner, width=8)
    world = replace(settings, full_view=False)  # the tests replace what agents see by the whole board
    return example_env(replace(presets.DEFAULT, world=world, learner=learner))


def flat(settings, row, column):
    """The cell of our flat board."""
    return (row + settings.margin) * (settings.width + 2 * settings.margin) + column + settings.margin


def on_map(settings, board):
    """Our flat board as [H, W]."""
    m, rows = settings.margin, settings.height + 2 * settings.margin
    return np.asarray(board).reshape(rows, -1)[m : m + settings.height, m : m + settings.width]


def kinds(env, layer):
    """[H, W]: what is on a layer of sorrel's board."""
    return np.vectorize(lambda entity: entity.kind)(env.world.map[:, :, layer])


def spawn_order(settings, starts, cells):
    """For `choice(len(cells), …)`: the places of our cells in sorrel's list of them."""
    places = {flat(settings, row, column): i for i, (row, column) in enumerate(cells)}
    return np.array([places[int(start)] for start in starts])


def inner(settings):
    """Cells within the wall, in sorrel's order."""
    return [(y, x) for y in range(1, settings.height - 1) for x in range(1, settings.width - 1)]


def lock_step(settings, record, answers, begin_epoch, begin_turn, same_board):
    """Step both worlds through some epochs; everything has to be equal."""
    paid = 0
    for epoch in range(EPOCHS):
        draws = parity.draw_walk(settings, jax.random.key(epoch))
        walk = parity.walk(settings, draws)
        inputs = np.asarray(encode(jnp.asarray(walk.views)[..., None, :], settings.encoding()))  # [T, N, inputs]
        begin_epoch(draws.reset)
        record.env.reset()
        assert not answers.choices, "sorrel drew less than it was given"
        for turn, actions in enumerate(draws.actions):
            begin_turn(jax.tree.map(lambda x, t=turn: x[t], draws.turns))
            states, rewards = record.turn(actions)
            np.testing.assert_array_equal(states.astype(np.float32), inputs[turn], err_msg=f"turn {turn}")
            np.testing.assert_array_equal(rewards.astype(np.float32), walk.rewards[turn], err_msg=f"turn {turn}")
            state = jax.tree.map(lambda x, t=turn: np.asarray(x[t]), walk.states)
            places = [flat(settings, *agent.location[:2]) for agent in record.env.agents]
            np.testing.assert_array_equal(places, state.positions)
            same_board(state)
        paid += np.count_nonzero(walk.rewards)
    assert paid, "nobody was rewarded, so no rewards were compared"


HUNT = treasurehunt_presets.PRESETS["sorrel"].world
HUNTS = {
    "onehot": replace(HUNT, view="onehot"),
    "rgb": HUNT,
    "crowded": replace(HUNT, height=8, width=9, num_agents=6, spawn_prob=0.05),
    "onehot, full view": replace(HUNT, height=9, width=7, view="onehot", full_view=True, spawn_prob=0.05),
    "rgb, full view": replace(HUNT, height=9, width=7, full_view=True, spawn_prob=0.05),
}


@pytest.mark.parametrize("settings", HUNTS.values(), ids=HUNTS)
def test_treasure_hunt(settings, monkeypatch):
    from sorrel.examples.treasurehunt.entities import EmptyEntity
    from sorrel.observation.observation_spec import OneHotObservationSpec, RGBObservationSpec

    env = make(treasurehunt_presets, settings)
    if settings.full_view:
        spec = OneHotObservationSpec if settings.view == "onehot" else RGBObservationSpec
        names = list(env.agents[0].observation_spec.entity_map)
        for agent in env.agents:
            agent.observation_spec = spec(names, full_view=True, env_dims=(settings.height, settings.width))
    answers, record = Replaced(monkeypatch), Record(env)
    answers.follow(monkeypatch, EmptyEntity)
    names = ["EmptyEntity", "Wall", "Gem", "Bone", "Food", "TreasurehuntAgent"]

    def begin_epoch(starts):
        answers.choices = [spawn_order(settings, starts, inner(settings))]

    def begin_turn(items):
        answers.random = lambda place: 0.0 if items[flat(settings, *place[:2])] else 1.0
        answers.pick = lambda among: next(
            x for x in among if x.kind == names[items[flat(settings, *answers.place[:2])]]
        )

    def same_board(state):
        np.testing.assert_array_equal(kinds(env, 1), np.array(names)[on_map(settings, state.board)])

    lock_step(settings, record, answers, begin_epoch, begin_turn, same_board)


def test_files_of_the_example_import(tmp_path):
    from sorrel.models.pytorch import PyTorchIQN

    from xladder import parameters, plan
    from xladder.runs import exchange

    preset = plan("treasurehunt", preset="sorrel")
    c, w = preset.config.learner, preset.config.world
    theirs = PyTorchIQN(
        input_size=(w.encoding().num_inputs,),
        action_space=4,
        layer_size=c.width,
        epsilon=c.epsilon,
        device="cpu",
        seed=1,
        n_frames=c.n_frames,
    )
    theirs.save(tmp_path / "agent.pkl")
    (found,) = exchange.read(tmp_path / "agent.pkl", preset).values()
    state = {name: values.numpy() for name, values in theirs.qnetwork_local.state_dict().items()}
    assert state["head1.weight"].shape == (250, 375)
    jax.tree.map(np.testing.assert_array_equal, found, parameters.to_tree("iqn", state))


TAG = tag_presets.DEFAULT.world
TAGS = {"example": TAG, "crowded": replace(TAG, height=5, width=5, radius=2, max_turns=100)}


@pytest.mark.parametrize("settings", TAGS.values(), ids=TAGS)
def test_tag(settings, monkeypatch):
    env = make(tag_presets, settings)
    answers, record = Replaced(monkeypatch), Record(env)
    tags = 0

    def begin_epoch(draws):
        # sorrel draws once who is it, and keeps that from epoch to epoch; here it is drawn in every epoch.
        for i, agent in enumerate(env.agents):
            agent.it = i == draws.it
        answers.choices = [spawn_order(settings, draws.starts, inner(settings))]

    def same_board(state):
        nonlocal tags
        names = np.array(["EmptyEntity", "Wall", "It", "NotIt"])
        np.testing.assert_array_equal(kinds(env, 0), names[on_map(settings, state.board)])
        assert [agent.it for agent in env.agents] == [i == state.it for i in range(settings.num_agents)]
        tags += 1

    lock_step(settings, record, answers, begin_epoch, lambda draws: None, same_board)
    assert tags == EPOCHS * settings.max_turns


IOWA = iowa_presets.DEFAULT.world
IOWAS = {"example": IOWA, "crowded": replace(IOWA, height=7, width=8, spawn_prob=0.1)}


@pytest.mark.parametrize("settings", IOWAS.values(), ids=IOWAS)
def test_iowa(settings, monkeypatch):
    from sorrel.examples.iowa.entities import Deck, EmptyEntity

    env = make(iowa_presets, settings)
    answers, record = Replaced(monkeypatch), Record(env)
    answers.follow(monkeypatch, EmptyEntity, Deck)
    cells = settings.cells()

    def begin_epoch(starts):
        answers.choices = [spawn_order(settings, starts, inner(settings))]

    def begin_turn(draws):
        def random(place):
            cell = flat(settings, *place[:2])
            if env.world.map[place].kind.startswith("Deck"):
                return float(draws.luck[cell])
            return 0.0 if draws.decks[cell] > 1 else 1.0

        answers.random = random
        answers.pick = lambda among: among[(draws.decks[flat(settings, *answers.place[:2])] - 4) // 3]

    def same_board(state):
        names = {"deck_a": "DeckA", "deck_b": "DeckB", "deck_c": "DeckC", "deck_d": "DeckD"}
        names |= {"sand": "EmptyEntity", "wall": "Wall", "agent": "GamblingAgent"}
        board = on_map(settings, state.board)
        ours = np.vectorize(lambda code: names[cells[code].kinds[-1]])(board)
        np.testing.assert_array_equal(kinds(env, 1), ours)
        theirs = np.vectorize(lambda entity: entity.value, otypes=[float])(env.world.map[:, :, 1])
        np.testing.assert_allclose(theirs, np.vectorize(lambda code: cells[code].value)(board), atol=1e-12)

    lock_step(settings, record, answers, begin_epoch, begin_turn, same_board)


CLEANUP = cleanup_presets.DEFAULT.world
CLEANUPS = {
    "example": CLEANUP,
    "busy": replace(
        CLEANUP, height=13, width=11, radius=2, num_agents=6, pollution_prob=0.08, apple_prob=0.1, initial_apples=5
    ),
    "short sight": replace(CLEANUP, height=12, width=16, radius=1, beam_radius=4, initial_apples=3),
    "apple": replace(CLEANUP, height=12, width=9, num_agents=5, mode="apple", initial_apples=9, apple_prob=0.05),
    "full view": replace(CLEANUP, num_agents=3, full_view=True),  # sorrel knows one size of whole boards
}


@pytest.mark.parametrize("settings", CLEANUPS.values(), ids=CLEANUPS)
def test_cleanup(settings, monkeypatch):
    from sorrel.examples.cleanup.agents import CleanupObservation
    from sorrel.examples.cleanup.entities import AppleTree, River
    from sorrel.examples.cleanup.env import ENTITY_LIST

    env = make(cleanup_presets, settings)
    if settings.full_view:
        for agent in env.agents:
            agent.observation_spec = CleanupObservation(ENTITY_LIST, vision_radius=settings.radius)
            agent.observation_spec.full_view = True
    answers, record = Replaced(monkeypatch), Record(env)
    answers.follow(monkeypatch, AppleTree, River)
    seen: set[str] = set()

    def begin_epoch(draws):
        world = settings.build()
        m, stride = settings.margin, settings.width + 2 * settings.margin
        places = [
            [(c // stride - m, c % stride - m) for c in cells] for cells in (world.orchard_cells(), world.spawn_cells())
        ]
        answers.choices = [
            spawn_order(settings, starts, sorted(cells)) for starts, cells in zip(draws[::-1], places, strict=True)
        ]
        for agent in env.agents:
            agent.direction = 2  # sorrel keeps the direction from epoch to epoch; here agents begin looking down

    def begin_turn(grows):
        answers.random = lambda place: 0.0 if grows[flat(settings, *place[:2])] else 1.0

    def same_board(state):
        ground = np.array(["EmptyEntity", "River", "Pollution", "AppleTree", "Apple", "Wall"])
        np.testing.assert_array_equal(kinds(env, 0), ground[on_map(settings, state.ground)])
        beams = {0: ("EmptyEntity", 0), CLEAN: ("CleanBeam", 0), OLD_CLEAN: ("CleanBeam", 1)}
        beams |= {ZAP: ("ZapBeam", 0), OLD_ZAP: ("ZapBeam", 1)}
        for (row, column), beam in np.ndenumerate(on_map(settings, state.beams)):
            entity = env.world.map[row, column, 2]
            if entity.kind != "Wall":
                assert (entity.kind, getattr(entity, "turn_counter", 0)) == beams[int(beam)]
        assert [agent.direction for agent in env.agents] == list(state.directions)
        seen.update(kinds(env, 0).ravel(), kinds(env, 2).ravel())

    lock_step(settings, record, answers, begin_epoch, begin_turn, same_board)
    missing = {"River", "Pollution"} if settings.mode == "apple" else set()
    assert seen == {*ENTITY_LIST} - {"CleanupAgent"} - missing
