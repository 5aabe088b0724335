"""Cleanup, tag and iowa: the facts of their rules, that both accounts of them agree, and how views are encoded."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from PIL import Image

from xladder.core.encoding import Block, Encoding
from xladder.errors import UsageError
from xladder.families.multi_agent import cleanup_presets, config, iowa_presets, parity, tag_presets
from xladder.families.multi_agent import treasurehunt_presets as hunt
from xladder.nets.codes import CodesTorso, encode
from xladder.nets.codes_torch import CodesTorso as TorchTorso
from xladder.worlds import cleanup, iowa, tag, treasurehunt
from xladder.worlds.cleanup import APPLE, CLEAN, CLEANS, OLD_CLEAN, POLLUTION, RIVER, TREE, ZAP, ZAPS
from xladder.worlds.entities import palette
from xladder.worlds.tag import IT, NOT_IT, STAYED_IT, TAGGED, WAS_FREE

UP, DOWN, LEFT, RIGHT, CLEANING, ZAPPING = range(6)
CLEANUP = cleanup_presets.WorldConfig(
    9, 9, 4, 2, max_turns=15, initial_apples=4, pollution_prob=0.2, apple_prob=0.2, beam_radius=2
)
IOWA = iowa_presets.WorldConfig(6, 7, 3, 1, max_turns=15, spawn_prob=0.2)
BOARDS = {
    "hunt, full view": hunt.WorldConfig(5, 6, 2, 1, max_turns=12, spawn_prob=0.3, view="rgb", full_view=True),
    "tag": tag_presets.WorldConfig(5, 6, 4, 2, max_turns=15),
    "tag, together": tag_presets.WorldConfig(5, 5, 4, 1, max_turns=15, observe="together", full_view=True),
    "iowa": IOWA,
    "cleanup": CLEANUP,
    "cleanup, together": replace(CLEANUP, observe="together", full_view=True, radius=0),
    "cleanup, apple": replace(CLEANUP, mode="apple", width=8, radius=3),
}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(b, id=name, marks=() if name in ("tag", "cleanup") else pytest.mark.slow)
        for name, b in BOARDS.items()
    ],
)
def test_both_worlds_give_the_same_account_of_every_turn(settings):
    for seed in range(2):
        draws = parity.draw_walk(settings, jax.random.key(seed))
        ours, theirs = parity.walk(settings, draws), parity.walk_host(settings, draws)
        for name in parity.Walk._fields:
            for one, other in zip(*map(jax.tree.leaves, (getattr(ours, name), getattr(theirs, name))), strict=True):
                np.testing.assert_array_equal(one, other, err_msg=name)
        assert len(np.unique(theirs.events)) > 1, "nothing happened, so nothing was compared"
        limits = settings.encoding().limits()
        assert (theirs.views >= 0).all() and (theirs.views < limits).all()


@pytest.mark.parametrize("settings", BOARDS.values(), ids=BOARDS)
def test_both_sides_draw_the_same_shapes(settings):
    world, host, rng = settings.build(), settings.on_host(), np.random.default_rng(0)
    ours = world.draw_reset(jax.random.key(0)), world.draw_turns(jax.random.key(0), 3)
    theirs = host.draw_reset(rng), host.draw_turns(rng, 3)
    ours, theirs = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    assert [np.shape(x) for x in ours] == [np.shape(x) for x in theirs]
    assert [x.dtype.kind for x in ours] == [x.dtype.kind for x in theirs]
    assert world.encoding == host.encoding and world.num_actions == host.num_actions


def test_the_encoding_is_the_looks_of_the_cells_channel_first():
    encoding = Encoding((Block(2, ((0.0, 0.0), (1.0, 0.5))), Block(1, ((0.0,), (2.0,), (3.0,)))))
    codes = np.array([[0, 1, 2], [1, 0, 0]], np.int8)
    expected = [0, 1, 0, 0.5, 3, 1, 0, 0.5, 0, 0]  # frame by frame: first channel, second channel, second block
    np.testing.assert_array_equal(encode(jnp.asarray(codes), encoding), expected)
    assert (encoding.num_cells, encoding.num_inputs, encoding.num_codes) == (3, 5, 3)


@pytest.mark.parametrize("settings", [IOWA, CLEANUP, BOARDS["hunt, full view"]], ids=["iowa", "cleanup", "rgb"])
def test_looking_up_multiplying_and_pytorch_agree(settings):
    encoding = settings.encoding()
    codes = np.random.default_rng(0).integers(0, encoding.limits(), (2, encoding.num_cells)).astype(np.int8)
    layer = CodesTorso(8, encoding)
    params = jax.jit(layer.init)(jax.random.key(0), codes)
    product, lookup = (jax.jit(partial(layer.apply, method=how))(params, codes) for how in ("__call__", "look_up"))
    np.testing.assert_allclose(lookup, product, atol=2e-5)
    other = TorchTorso(2, encoding, 8)
    kernel, bias = params["params"]["kernel"], params["params"]["bias"]
    other.load_state_dict({"weight": torch.tensor(np.array(kernel).T), "bias": torch.tensor(np.array(bias))})
    np.testing.assert_allclose(other(torch.from_numpy(codes)[None])[0].detach(), product, atol=2e-5)
    blank = jax.jit(layer.apply)(params, np.zeros_like(codes))
    np.testing.assert_allclose(blank, np.maximum(bias, 0))  # frames that were never written show nothing


def test_sizes_are_those_of_sorrels_examples():
    inputs = {
        "treasurehunt": (hunt.PRESETS["sorrel"], 75, 4),
        "tag": (tag_presets.DEFAULT, 325, 4),
        "iowa": (iowa_presets.DEFAULT, 200, 4),
        "cleanup": (cleanup_presets.DEFAULT, 1101, 6),
    }
    for preset, size, actions in inputs.values():
        assert preset.world.encoding().num_inputs == size
        assert len(preset.world.action_names) == actions


def test_colours_go_round_the_wheel():
    assert palette(3) == [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    assert palette(5)[1] == (203, 255, 0)  # a fifth of the way, rounded down


def test_iowa_sees_sand_and_two_layers_of_wall_but_no_outcome():
    looks = IOWA.picture().looks
    names = [cell.name for cell in IOWA.cells()]
    by_name = dict(zip(names, looks, strict=True))
    assert by_name["wall"][1] == 2.0 and by_name["outside"][1] == 1.0
    assert by_name["empty"][2] == by_name["deck_a gain"][2] == 1.0
    assert by_name["deck_b new"] == by_name["deck_b gain"] == by_name["deck_b loss"]
    assert not any(looks[0])


def test_a_new_deck_is_worth_nothing_until_the_next_turn():
    world = replace(IOWA, num_agents=1).on_host()
    start = world.cell(1, 1)
    world.reset(np.array([start]))
    decks = np.ones(world.board.shape, np.int8)
    decks[world.cell(2, 1)] = 4 + 3 * 1  # a new deck b below the agent
    luck = np.full(world.board.shape, 0.05, np.float32)
    for more, value in [(0.0, 0.0), (0.0, 1.1 - 12.5), (0.5, 1.1)]:
        world.begin_turn((decks, luck + np.float32(more)))
        assert world.reward(int(world.board[world.cell(2, 1)])) == np.float32(value)
    assert world.reward(world.move(0, DOWN)) == np.float32(1.1)


class Board:
    """A world on the host, set up by hand; the twin follows from the comparisons above."""

    def __init__(self, settings, reset):
        self.world = settings.on_host()
        self.world.reset(reset(self.world.cell))

    def quiet_turn(self):
        """A turn in which nothing grows."""
        self.world.begin_turn(np.zeros(self.world.ground.shape, bool))


def test_whoever_is_it_tags_the_first_neighbour_of_up_right_down_left():
    board = Board(tag_presets.WorldConfig(6, 6, 4, 1), lambda at: ([at(2, 2), at(3, 3), at(4, 2), at(1, 4)], 0)).world
    assert board.move(1, UP) == WAS_FREE  # to the right of the first
    assert board.move(0, LEFT) == STAYED_IT
    assert board.move(0, RIGHT) == TAGGED and board.it == 1  # back beside the second
    assert board.board[board.cell(2, 2)] == NOT_IT and board.board[board.cell(2, 3)] == IT
    assert board.view(1)[-1] == 1 and board.view(0)[-1] == 0
    assert list(board.reward(np.array([STAYED_IT, WAS_FREE, TAGGED]))) == [0, 10, 10]


def cleanup_board(**changes):
    settings = replace(CLEANUP, num_agents=2, **changes)
    return Board(settings, lambda at: ([at(4, 4), at(4, 6)], [at(7, 2)]))


def test_a_beam_is_three_cells_wide_lasts_two_turns_and_cleans_twice():
    board = cleanup_board()
    world = board.world
    assert world.move(0, UP) == 0 and world.move(0, CLEANING) == CLEANS  # at (3, 4), looking up
    lit = {(2, 4), (1, 4), (3, 3), (2, 3), (3, 5), (2, 5)}
    found = {(y, x) for y in range(9) for x in range(9) if world.beams[world.cell(y, x)] == CLEAN}
    assert found == lit
    river = world.cell(2, 4)
    assert world.ground[river] == RIVER
    for expected in (OLD_CLEAN, 0):
        world.ground[river] = POLLUTION
        board.quiet_turn()
        assert world.ground[river] == RIVER and world.beams[river] == expected
    world.ground[river] = POLLUTION
    board.quiet_turn()
    assert world.ground[river] == POLLUTION


def test_zapping_costs_whoever_moves_into_the_beam_or_fires_from_it():
    board = cleanup_board()
    world = board.world
    world.move(0, RIGHT)  # to (4, 5), looking at the other agent
    assert world.move(0, ZAPPING) == ZAPS
    assert world.beams[world.cell(4, 6)] == ZAP
    assert world.reward(world.move(1, CLEANING)) == -1.0
    assert world.reward(world.move(1, DOWN)) == 0.0  # beyond the beam: it is three rows wide, one ahead and two beside


def test_apples_pay_on_entering_and_are_gone_after_the_turn():
    board = cleanup_board()
    world = board.world
    cell = world.cell(5, 4)
    world.ground[cell] = APPLE
    assert world.reward(world.move(0, DOWN)) == 1.0
    world.move(1, LEFT)
    assert world.ground[cell] == APPLE
    board.quiet_turn()
    assert world.ground[cell] == TREE


def test_no_apples_grow_while_more_than_the_threshold_is_polluted():
    board = cleanup_board(pollution_threshold=0.5)
    world = board.world
    river, trees = (np.flatnonzero(world.ground == code) for code in (RIVER, TREE))
    rain = np.zeros(world.ground.shape, bool)
    rain[trees] = True
    half = len(river) // 2
    for polluted, grows in [(half + 1, False), (half, True)]:
        world.ground[river] = RIVER
        world.ground[river[:polluted]] = POLLUTION
        world.begin_turn(rain)
        assert (world.ground[trees] == APPLE).any() == grows


WRONG = {
    "num_agents": (tag_presets.DEFAULT, {"num_agents": 1}),
    "deck-gains": (iowa_presets.DEFAULT, {"deck_gains": (1.0,)}),
    "loss-probs": (iowa_presets.DEFAULT, {"loss_probs": (2.0, 0.1, 0.5, 0.1)}),
    "initial-apples": (cleanup_presets.DEFAULT, {"initial_apples": 10_000}),
    "beam-radius": (cleanup_presets.DEFAULT, {"beam_radius": 0}),
    "world.height": (cleanup_presets.DEFAULT, {"height": 200}),
}


@pytest.mark.parametrize(("preset", "changes"), WRONG.values(), ids=WRONG)
def test_impossible_boards_are_refused(preset, changes):
    with pytest.raises(UsageError, match="world"):
        config.check(replace(preset, world=replace(preset.world, **changes)))


@pytest.mark.parametrize("mode", ["default", "apple"])
@pytest.mark.parametrize("size", [(9, 9), (12, 7), (6, 6), (21, 31), (5, 16)])
def test_the_room_that_is_promised_is_there(size, mode):
    settings = cleanup_presets.WorldConfig(*size, mode=mode)
    world = settings.build()
    assert settings._room() == (len(world.spawn_cells()), len(world.orchard_cells()))


STATES = {"tag": tag.State, "iowa": iowa.State, "cleanup": cleanup.State, "hunt, full view": treasurehunt.State}


@pytest.mark.slow
@pytest.mark.parametrize("name", STATES)
def test_an_epoch_can_be_replayed(name, tmp_path):
    settings = BOARDS[name]
    draws = parity.draw_walk(settings, jax.random.key(0))
    walk = parity.walk_host(settings, draws)
    states = STATES[name](*walk.states)
    settings.draw(tmp_path / "a.gif", states, walk.rewards, name)
    with Image.open(tmp_path / "a.gif") as image:
        assert image.n_frames == settings.max_turns
    values = np.zeros((*draws.actions.shape, len(settings.action_names)), np.float32)
    played = config.Played(walk.views, values, draws.actions, walk.rewards)
    scene = settings.board(name, jax.tree.map(lambda x: x[0], states), states, played)
    shape = (settings.max_turns, settings.num_agents, *settings.view_shape)
    assert scene["views"]["shape"] == list(shape) and scene["whole"] == settings.full_view
    assert scene["cells"]["shape"] == [settings.max_turns, settings.height, settings.width]
    assert all(item["sprite"] < len(scene["sprites"]) for item in scene["legend"])
