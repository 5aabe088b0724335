"""GFlowNet losses: numbers worked out by hand, an exact flow on a small grid, and the PyTorch twins."""

import inspect
from functools import cache
from itertools import cycle, islice, pairwise, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from xladder.losses import balance, balance_torch

LOSSES = (
    "trajectory_balance",
    "detailed_balance",
    "sub_trajectory_balance",
    "flow_matching",
    "forward_looking_balance",
    "log_partition_variance",
    "forward_looking_sub_trajectory_balance",
    "relative_trajectory_balance",
    "modified_detailed_balance",
)
AHEAD = ("forward_looking_balance", "forward_looking_sub_trajectory_balance")
GARBAGE = (np.inf, np.nan, -1e30, -np.inf, 1e30)
T = 7


def pad(values, before=0, size=T):
    """float32 [size]: the values after `before` entries, and garbage wherever nothing may be read."""
    garbage = list(islice(cycle(GARBAGE), size))
    return np.array([*garbage[:before], *values, *garbage[before + len(values) :]], np.float32)


@cache
def arguments(name):
    """The names of a loss's arguments."""
    function = balance.log_weight if name == "log_partition_variance" else getattr(balance, name)
    return tuple(inspect.signature(function).parameters)


@cache
def mapped(name):
    """A loss and its gradients over a batch, compiled once for all tests. Log Z and λ are shared."""
    names = arguments(name)
    wanted = tuple(i for i, argument in enumerate(names) if argument.startswith("log"))
    axes = [None if argument in ("log_z", "lam", "delta") else 0 for argument in names]

    def losses(*args):
        if name == "log_partition_variance":
            return balance.log_partition_variance(jax.vmap(balance.log_weight)(*args))
        return jax.vmap(getattr(balance, name), axes)(*args)

    def summed(*args):
        values = losses(*args)
        return values.sum(), values

    return jax.jit(jax.value_and_grad(summed, wanted, has_aux=True))


def ours(name, batch):
    """The loss of each trajectory (or of all), and its gradients by argument."""
    names = arguments(name)
    with jax.numpy_dtype_promotion("strict"):
        (_, values), gradients = mapped(name)(*(batch[argument] for argument in names))
    wanted = (argument for argument in names if argument.startswith("log"))
    return np.asarray(values), dict(zip(wanted, map(np.asarray, gradients), strict=True))


def theirs(name, batch):
    """The same from PyTorch."""
    tensors = {argument: torch.tensor(batch[argument]) for argument in arguments(name)}
    tensors["length"] = tensors["length"].long()
    leaves = {argument: t.requires_grad_() for argument, t in tensors.items() if argument.startswith("log")}
    tensors |= {argument: float(batch[argument]) for argument in ("lam", "delta") if argument in tensors}
    if name == "log_partition_variance":
        values = balance_torch.log_partition_variance(balance_torch.log_weight(*tensors.values()))
    else:
        values = getattr(balance_torch, name)(*tensors.values())
    values.sum().backward()
    return values.detach().numpy(), {argument: leaf.grad.numpy() for argument, leaf in leaves.items()}


def readable(name, argument, length):
    """The steps of a [T] argument that a loss reads, as the definitions have them."""
    if name == "modified_detailed_balance" and length == 1:
        return range(0)
    if argument == "log_pb" or (name == "modified_detailed_balance" and argument == "log_pf"):
        return range(length - 1)
    if argument == "log_inflow":
        return range(1, length)
    if name == "flow_matching":  # s_0 has no inflow; it counts only if the trajectory stops there
        return range(length - 1, length) if argument == "log_pf" else range(min(1, length - 1), length)
    return range(length)


# ---- by hand -------------------------------------------------------------------------------------------------------

# Two steps and a stop. The steps' log P_F − log P_B are −1 + 0.5 = −0.5, −2 + 1 = −1 and −0.5, and −2 together.
BY_HAND = dict(
    log_z=np.float32(2),
    log_pf=pad([-1, -2, -0.5]),
    log_pb=pad([-0.5, -1]),
    log_flow=pad([3, 1, 2.5]),
    log_reward=np.float32(1.5),
    log_rewards=pad([-0.5, 0.5, 1.5]),
    log_prior=pad([-0.7, -0.7, -1]),
    log_stop=pad([-0.25, -1.5, -0.5]),
    log_inflow=pad([1.5, 4], before=1),
    length=3,
    lam=0.5,
    delta=1.5,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # 2 − 2 − 1.5 = −1.5
        ("trajectory_balance", 2.25),
        # 3 − 1 − 0.5 = 1.5,  1 − 2.5 − 1 = −2.5,  2.5 − 1.5 − 0.5 = 0.5: (2.25 + 6.25 + 0.25) / 3
        ("detailed_balance", 8.75 / 3),
        # Parts of one step, λ = ½:   2.25 + 6.25 + 0.25                      = 8.75, × ½ = 4.375
        # of two steps, λ² = ¼:       (1.5 − 2.5)² = 1, (−2.5 + 0.5)² = 4:    5,      × ¼ = 1.25
        # of three steps, λ³ = ⅛:     (1.5 − 2.5 + 0.5)²                      = 0.25, × ⅛ = 0.03125
        # Weights: 3 · ½ + 2 · ¼ + ⅛ = 2.125
        ("sub_trajectory_balance", 5.65625 / 2.125),
        # s_1: 1.5 − 1 = 0.5,  s_2: 4 − 2.5 = 1.5,  stop: 2.5 − 0.5 − 1.5 = 0.5: (0.25 + 2.25 + 0.25) / 3
        ("flow_matching", 2.75 / 3),
        # log F = (3 − 0.5, 1 + 0.5, 2.5 + 1.5) = (2.5, 1.5, 4):
        # 2.5 − 1.5 − 0.5 = 0.5,  1.5 − 4 − 1 = −3.5,  4 − 1.5 − 0.5 = 2: (0.25 + 12.25 + 4) / 3
        ("forward_looking_balance", 5.5),
        # The same residuals 0.5, −3.5 and 2 in parts of one step (16.5 × ½), two (−3 and −1.5: 11.25 × ¼) and three
        # steps (−1: 1 × ⅛), with the weights from above
        ("forward_looking_sub_trajectory_balance", 11.1875 / 2.125),
        # 2 + (−3.5 + 2.4) − 1.5 = −0.6
        ("relative_trajectory_balance", 0.36),
        # log R − log P_F(stop) = (−0.25, 2, 2): −0.25 − 2 − 0.5 = −2.75,  2 − 2 − 1 = −1. Beyond 1.5, 2.75² becomes
        # 1.5² and 2 · 1.5 for each further one: (2.25 + 3.75 + 1) / 2
        ("modified_detailed_balance", 3.5),
        # 1.5 + 2
        ("log_weight", 3.5),
    ],
)
def test_two_steps_and_a_stop_by_hand(name, expected):
    loss = getattr(balance, name)(*(BY_HAND[argument] for argument in arguments(name)))
    assert loss.dtype == jnp.float32
    assert float(loss) == pytest.approx(expected, rel=1e-6)


# Deleu et al. 2022: of a step s → s′, the square of log R(s′) + log P_B(s|s′) + log P_F(stop|s) − log R(s) −
# log P_F(s′|s) − log P_F(stop|s′). Their code (jax-dag-gflownet, `detailed_balance_loss`, with log P_B = −log 3) gives
# the mean of half the square, or of Huber's loss, over the transitions of these two trajectories.
PUBLISHED = dict(
    log_stop=np.float32([[-1.2, -0.7, -2.0], [-0.3, -0.9, -1.1]]),
    log_pf=np.float32([[-0.6, -1.9, -2.0], [-2.2, -1.3, -1.1]]),
    log_pb=np.full((2, 3), -np.log(3), np.float32),
    log_rewards=np.float32([[-4.0, -1.5, 0.5], [2.0, -0.25, 1.0]]),
    length=np.int32([3, 3]),
)


@pytest.mark.parametrize(("delta", "expected"), [(1.0, 1.4761627003527042), (np.inf, 2.762950352070754)])
def test_modified_detailed_balance_is_the_published_one(delta, expected):
    batch = PUBLISHED | dict(delta=np.float32(delta))
    for values in (ours("modified_detailed_balance", batch)[0], theirs("modified_detailed_balance", batch)[0]):
        assert values.mean() == pytest.approx(2 * expected, rel=1e-6)


# Stopping at once: 2 − 0.5 − 1 = 0.5, but for forward-looking losses log R cancels, and 2 − 0.5 remains. A prior that
# stops with log-probability −1 makes it 2 − 0.5 + 1 − 1.
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, 0.25) for name in LOSSES[:4]),
        *((name, 2.25) for name in AHEAD),
        ("relative_trajectory_balance", 2.25),
        ("modified_detailed_balance", 0),
    ],
)
def test_a_trajectory_of_one_state_is_its_stop_edge(name, expected):
    single = dict(
        log_z=2.0, log_pf=pad([-0.5]), log_flow=pad([2]), log_reward=1.0, log_rewards=pad([7]), length=1, lam=0.3
    )
    single.update(log_pb=pad([]), log_inflow=pad([]), log_prior=pad([-1]), log_stop=pad([-0.5]), delta=1.0)
    assert float(getattr(balance, name)(*(single[a] for a in arguments(name)))) == pytest.approx(expected, rel=1e-6)


def test_log_partition_variance_by_hand():
    # mean 3: (4 + 1 + 9) / 3; the gradient is 2/3 of each deviation
    value, gradient = jax.value_and_grad(balance.log_partition_variance)(jnp.array([1.0, 2.0, 6.0]))
    assert float(value) == pytest.approx(14 / 3, rel=1e-6)
    np.testing.assert_allclose(gradient, [-4 / 3, -2 / 3, 2], rtol=1e-6)


# ---- an exact flow -------------------------------------------------------------------------------------------------


def parents_of(state):
    return [tuple(np.subtract(state, unit)) for unit in ((1, 0), (0, 1)) if min(np.subtract(state, unit)) >= 0]


def exact_flow(backward, seed=0):
    """All 19 trajectories on the 3 × 3 grid, with the policies and flows that fit random rewards, in float64."""
    rng = np.random.default_rng(seed)
    states = sorted(product(range(3), repeat=2), key=sum)
    reward = {state: rng.uniform(0.1, 3) for state in states}
    undo = {}  # undo[parent, child] = P_B(parent | child)
    for child in states[1:]:
        weights = [1.0 if backward == "uniform" else rng.uniform(0.1, 1) for _ in parents_of(child)]
        undo |= {(p, child): w / sum(weights) for p, w in zip(parents_of(child), weights, strict=True)}
    flow = {}
    for state in reversed(states):  # children first
        flow[state] = reward[state] + sum(flow[child] * p for (parent, child), p in undo.items() if parent == state)
    go = {(parent, child): flow[child] * p / flow[parent] for (parent, child), p in undo.items()}
    assert flow[0, 0] == pytest.approx(sum(reward.values()))  # all reward flows out of the source

    def paths_to(state):
        return [[*path, state] for parent in parents_of(state) for path in paths_to(parent)] or [[state]]

    def record(path):
        edges = list(pairwise(path))
        inflow = [sum(flow[p] * go[p, state] for p in parents_of(state)) for state in path[1:]]
        stop = reward[path[-1]] / flow[path[-1]]
        return dict(
            log_pf=pad(np.log([*(go[edge] for edge in edges), stop])),
            log_pb=pad(np.log([undo[edge] for edge in edges])),
            log_flow=pad(np.log([flow[state] for state in path])),
            log_ahead=pad(np.log([flow[state] / reward[state] for state in path])),
            log_inflow=pad(np.log(inflow), before=1),
            log_prior=pad(np.log([*(undo[edge] for edge in edges), 1.0])),  # then it is trajectory balance
            log_stop=pad(np.log([reward[state] / flow[state] for state in path])),
            log_reward=np.float32(np.log(reward[path[-1]])),
            log_rewards=pad(np.log([reward[state] for state in path])),
            length=np.int32(len(path)),
        )

    records = [record(path) for state in states for path in paths_to(state)]
    batch = {field: np.stack([r[field] for r in records]) for field in records[0]}
    return batch | dict(log_z=np.float32(np.log(flow[0, 0])), lam=np.float32(0.9), delta=np.float32(np.inf))


def flow_for(name, backward):
    batch = exact_flow(backward)
    ahead = batch.pop("log_ahead")
    return batch | dict(log_flow=ahead) if name in AHEAD else batch


@pytest.mark.parametrize("backward", ["uniform", "random"])
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_vanishes_on_an_exact_flow(name, backward):
    batch = flow_for(name, backward)
    assert batch["length"].shape == (19,)
    # Residuals are float32 rounding of a few numbers below 5: some 1e-6, and squared.
    for values in (ours(name, batch)[0], theirs(name, batch)[0]):
        assert np.all(values < 1e-11)


def test_every_trajectory_of_an_exact_flow_knows_log_z():
    batch = exact_flow("random")
    weights = jax.vmap(balance.log_weight)(*(batch[argument] for argument in arguments("log_weight")))
    np.testing.assert_allclose(weights, np.full(19, batch["log_z"]), rtol=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_no_loss_vanishes_when_any_number_it_reads_is_disturbed(name):
    batch = flow_for(name, "random")
    row, length = 18, 5  # the last trajectory goes all the way to (2, 2)
    assert batch["length"][row] == length
    disturbed = []
    for argument in arguments(name):
        if argument.startswith("log"):
            shape = batch[argument].shape
            places = [(row, t) for t in readable(name, argument, length)] if len(shape) == 2 else [(row,) * len(shape)]
            for place in places:
                other = np.array(batch[argument])
                other[place] += 0.5
                loss = ours(name, batch | {argument: other})[0]
                disturbed.append(loss if name == "log_partition_variance" else loss[row])
    # Half off in one of five steps is at least 0.25 / 5, but in a weighted mean over 15 parts or in the variance of
    # 19 trajectories less. A forward-looking reward's mistake at the end shows only in the step that leads there.
    assert len(disturbed) >= 9
    assert min(disturbed) > 0.01


def test_a_disturbed_step_costs_what_the_formulae_say():
    step, off = 2, 0.5
    batch = exact_flow("uniform")
    batch["log_pf"][18, step] += off
    assert ours("trajectory_balance", batch)[0][18] == pytest.approx(off**2, rel=1e-4)
    assert ours("detailed_balance", batch)[0][18] == pytest.approx(off**2 / 5, rel=1e-4)
    # Of the parts i → j, those with i ≤ 2 < j contain the step.
    weights = {(i, j): 0.9 ** (j - i) for j in range(6) for i in range(j)}
    hit = sum(weight for (i, j), weight in weights.items() if i <= step < j)
    assert ours("sub_trajectory_balance", batch)[0][18] == pytest.approx(off**2 * hit / sum(weights.values()), rel=1e-4)
    # One of 19 is off by δ: the variance is δ²·(1/19)·(18/19).
    assert ours("log_partition_variance", batch)[0] == pytest.approx(off**2 * 18 / 19**2, rel=1e-4)
    assert ours("flow_matching", batch)[0][18] < 1e-11  # it reads the stop only


# ---- random trajectories, and the twins ----------------------------------------------------------------------------


def random_batch(seed=1, lam=0.7):
    """Trajectories of every length, with garbage in the padding of each array."""
    rng = np.random.default_rng(seed)
    lengths = np.array([*range(1, T + 1), 4], np.int32)

    def fill(argument):
        steps = [readable("", argument, length) for length in lengths]
        return np.stack([pad(rng.normal(-1, 1, len(s)), before=s.start if len(s) else 0) for s in steps])

    steps = ("log_pf", "log_pb", "log_flow", "log_inflow", "log_rewards", "log_prior", "log_stop")
    batch = {argument: fill(argument) for argument in steps}
    reward = rng.normal(0, 1, len(lengths)).astype(np.float32)
    return batch | dict(
        log_z=np.float32(0.4), log_reward=reward, length=lengths, lam=np.float32(lam), delta=np.float32(np.inf)
    )


@pytest.mark.parametrize("name", LOSSES)
def test_the_pytorch_twin_agrees_in_value_and_gradient(name):
    batch = random_batch()
    (value, gradients), (twin, twin_gradients) = ours(name, batch), theirs(name, batch)
    # Sums of at most 28 float32 numbers of size one, in another order.
    np.testing.assert_allclose(value, twin, rtol=1e-5)
    assert gradients.keys() == twin_gradients.keys()
    for argument, gradient in gradients.items():
        np.testing.assert_allclose(gradient, twin_gradients[argument], rtol=1e-5, atol=1e-5, err_msg=argument)


@pytest.mark.parametrize("side", [ours, theirs])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_reach_what_is_read_and_are_exactly_zero_elsewhere(name, side):
    batch = random_batch()
    values, gradients = side(name, batch)
    assert np.all(np.isfinite(values))
    for argument, gradient in gradients.items():
        expected = np.ones(gradient.shape, bool)
        if gradient.ndim == 2:
            steps = (readable(name, argument, int(length)) for length in batch["length"])
            expected = np.array([[t in read for t in range(T)] for read in steps])
        if name in AHEAD and argument == "log_rewards":
            expected[0] = False  # R(x) cancels when the start is the end
        assert np.all(np.isfinite(gradient)), argument
        np.testing.assert_array_equal(gradient != 0, expected, err_msg=argument)


def sub_trajectories_one_by_one(log_flow, log_pf, log_pb, log_reward, length, lam):
    """The definition, as a double loop in float64."""
    flow = [*log_flow[:length].astype(float), float(log_reward)]
    ratio = [*(log_pf[: length - 1].astype(float) - log_pb[: length - 1].astype(float)), float(log_pf[length - 1])]
    parts = [(i, j) for j in range(length + 1) for i in range(j)]
    squares = sum(lam ** (j - i) * (flow[i] + sum(ratio[i:j]) - flow[j]) ** 2 for i, j in parts)
    return squares / sum(lam ** (j - i) for i, j in parts)


@pytest.mark.parametrize("lam", [1.0, 0.7, 0.01])
def test_sub_trajectory_balance_is_the_double_loop_over_parts(lam):
    batch = random_batch(seed=2, lam=lam)
    rows = zip(*(batch[a] for a in ("log_flow", "log_pf", "log_pb", "log_reward", "length")), strict=True)
    expected = [sub_trajectories_one_by_one(*row, lam) for row in rows]
    np.testing.assert_allclose(ours("sub_trajectory_balance", batch)[0], expected, rtol=1e-5)


def all_pairs(log_flow, log_pf, log_pb, log_reward, length, lam):
    """The definition in float64, of trajectories [T] with all T steps."""
    flow, ratio = torch.cat([log_flow, log_reward[None]]), log_pf.clone()
    ratio[:-1] -= log_pb[:-1]
    ends = flow - torch.cat([torch.zeros(1), ratio]).cumsum(0)
    i, j = torch.triu_indices(length + 1, length + 1, 1)
    weight = lam ** (j - i)
    return (weight * (ends[i] - ends[j]).square()).sum() / weight.sum()


@pytest.mark.parametrize("lam", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("side", [ours, theirs])
def test_long_trajectories_need_no_pairs_of_states(side, lam):
    rng, steps = np.random.default_rng(7), 200
    batch = {name: rng.normal(0, 1, (1, steps)).astype(np.float32) for name in ("log_flow", "log_pf", "log_pb")}
    batch |= dict(log_reward=np.float32([0.3]), length=np.int32([steps]), lam=np.float32(lam))
    values, gradients = side("sub_trajectory_balance", batch)
    exact = {name: torch.tensor(batch[name][0], dtype=torch.float64, requires_grad=True) for name in gradients}
    given = [exact[name] for name in ("log_flow", "log_pf", "log_pb", "log_reward")]
    value = all_pairs(*given, steps, lam)
    value.backward()
    assert values[0] == pytest.approx(value.item(), rel=1e-6)
    for name, gradient in gradients.items():
        right = exact[name].grad.numpy()  # of flows: differences of nearly equal numbers
        assert np.abs(gradient[0] - right).max() < 1e-5 * np.abs(right).max(), name


def test_sub_trajectory_balance_has_its_limits():
    batch = random_batch(seed=3, lam=1e-6)
    parts, steps = ours("sub_trajectory_balance", batch)[0], ours("detailed_balance", batch)[0]
    np.testing.assert_allclose(parts, steps, rtol=1e-4)  # λ → 0 leaves parts of one step: detailed balance
    for lam in (0.3, 1.0):  # one step has one part, whatever λ is
        once = ours("sub_trajectory_balance", batch | dict(lam=np.float32(lam)))[0][0]
        assert once == pytest.approx(float(steps[0]), rel=1e-6)


@pytest.mark.slow
def test_large_flows_do_not_drown_small_residuals():
    # Log-flows fall from 1000 by about 4 a step, and residuals are some 0.01. One float32 rounding near 1000 is up to
    # 3e-5, so adding to a flow before its neighbour is taken off would cost three digits.
    rng, steps = np.random.default_rng(4), 200
    log_flow = np.float32(1000 - np.cumsum(rng.uniform(3, 5, steps)))
    log_pb = rng.normal(-1, 0.3, steps).astype(np.float32)
    after = np.append(log_flow[1:], log_flow[-1] - 4).astype(float)
    undo = np.append(log_pb[:-1], 0).astype(float)
    log_pf = np.float32(after - log_flow + undo + rng.normal(0, 0.01, steps))
    args = log_flow, log_pf, log_pb, np.float32(after[-1]), steps
    expected = sub_trajectories_one_by_one(*args, 0.9)
    assert float(balance.sub_trajectory_balance(*args, 0.9)) == pytest.approx(expected, rel=1e-4)
    batch = [torch.tensor(a)[None] for a in args]
    assert float(balance_torch.sub_trajectory_balance(*batch, 0.9)) == pytest.approx(expected, rel=1e-4)
    # λ may be swept or learned: λ to the power of −200 would overflow, and spoil its gradient.
    assert np.isfinite(jax.grad(balance.sub_trajectory_balance, argnums=5)(*args, 0.01))
