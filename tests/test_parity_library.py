"""Any PyTorch module and its Flax twin: which layers belong together, parity, numbers both ways, the hybrid step."""

import copy
import re
import subprocess
import sys

import flax.linen as fnn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.conftest import assert_trees_equal
from xladder import bridge, parity
from xladder.errors import UsageError
from xladder.hybrid import JaxStep
from xladder.nets.noisy import NoisyDense
from xladder.nets.noisy_torch import NoisyLinear

ORDER = ["forward", "loss", "gradients", "one update", "4 updates"]
RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 4), np.float32)
PICTURES = RNG.standard_normal((2, 3, 5, 5), np.float32)
WORDS = RNG.integers(0, 7, (3, 5))


class Net(nn.Module):
    """A module made from some layers and a function of them."""

    def __init__(self, forward, **layers):
        super().__init__()
        torch.manual_seed(0)
        for name, layer in layers.items():
            setattr(self, name, layer())
        self.call = forward

    def forward(self, *args, **kwargs):
        return self.call(self, *args, **kwargs)


class Twin(fnn.Module):
    """The same in Flax."""

    call: object

    @fnn.compact
    def __call__(self, *args, **kwargs):
        return self.call(self, *args, **kwargs)


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2))


def flax_mlp(*widths, act=jnp.tanh) -> fnn.Module:
    a, b, c = widths or (6, 6, 2)
    return fnn.Sequential([fnn.Dense(a), fnn.relu, fnn.Dense(b), act, fnn.Dense(c)])


def torch_loss(net, batch):
    return (net(batch) ** 2).mean()


def jax_loss(net, batch):
    return jnp.mean(net(batch) ** 2)


LOSSES = (torch_loss, jax_loss)


def picture_net(padding=0) -> nn.Module:
    def forward(net, x):
        x = torch.relu(net.norm(net.conv(x)))
        return {"value": net.head(x.flatten(1)), "picture": x.movedim(1, -1)}

    return Net(
        forward,
        conv=lambda: nn.Conv2d(3, 4, 3, padding=padding),
        norm=lambda: nn.GroupNorm(2, 4),
        head=lambda: nn.Linear(36, 2),
    )


def flax_picture_net(first=True, epsilon=1e-5, **options) -> fnn.Module:
    def forward(_, x):
        x = fnn.Conv(4, (3, 3), **{"padding": "VALID", **options})(jnp.moveaxis(x, 1, -1))
        x = fnn.relu(fnn.GroupNorm(2, epsilon=epsilon)(x))
        flat = jnp.moveaxis(x, -1, 1) if first else x
        return {"value": fnn.Dense(2)(flat.reshape(len(x), -1)), "picture": x}

    return Twin(forward)


def word_net() -> nn.Module:
    def forward(net, words):
        x = net.norm(torch.relu(net.conv(net.embedding(words).transpose(1, 2))).transpose(1, 2))
        return net.scale * net.gru(x)[0][:, -1]

    return Net(
        forward,
        embedding=lambda: nn.Embedding(7, 5),
        conv=lambda: nn.Conv1d(5, 6, 3, padding=1),
        norm=lambda: nn.LayerNorm(6),
        gru=lambda: nn.GRU(6, 4, batch_first=True),
        scale=lambda: nn.Parameter(torch.tensor(1.5)),
    )


def flax_word_net() -> fnn.Module:
    def forward(module, words):
        x = fnn.relu(fnn.Conv(6, (3,))(fnn.Embed(7, 5)(words)))
        x = fnn.RNN(fnn.GRUCell(4))(fnn.LayerNorm(epsilon=1e-5)(x))
        return module.param("scale", fnn.initializers.ones, ()) * x[:, -1]

    return Twin(forward)


def noisy_net() -> nn.Module:
    return Net(
        lambda net, x: net.bn(net.noisy(x)),
        noisy=lambda: NoisyLinear(4, 3, 0.5, True),
        bn=lambda: nn.BatchNorm1d(3),
    )


def flax_noisy_net() -> fnn.Module:
    def forward(_, x, train):
        x = NoisyDense(3, 0.5, True)(x, None)
        return fnn.Dropout(0.5, deterministic=not train)(fnn.BatchNorm(use_running_average=not train)(x))

    class Trained(fnn.Module):
        @fnn.compact
        def __call__(self, x, train=True):
            return forward(self, x, train)

    return Trained()


def lstm_net() -> nn.Module:
    return Net(lambda net, x, h: net.cell(x, (h, h)), cell=lambda: nn.LSTMCell(4, 3))


def flax_lstm_net() -> fnn.Module:
    def forward(_, x, h):
        (c, h), _ = fnn.OptimizedLSTMCell(3)((h, h), x)
        return h, c

    return Twin(forward)


# ---- twins that are twins -------------------------------------------------------------------------------------------

TWINS = {
    "linear": (mlp, flax_mlp, X),
    "convolution, several outputs": (picture_net, flax_picture_net, PICTURES),
    "embedding, norm, GRU, parameter": (word_net, flax_word_net, WORDS),
    "noisy, batch norm": (noisy_net, flax_noisy_net, X),
    "LSTM, several inputs": (lstm_net, flax_lstm_net, (X, X[:, :3])),
}


@pytest.mark.parametrize("name", TWINS)
def test_twins_pass_every_level_and_the_modules_stay_as_they_were(name):
    make, make_twin, inputs = TWINS[name]
    net = make()
    before = copy.deepcopy(net.state_dict())
    report = parity.check(net, make_twin(), inputs, updates=3).raise_if_failed()
    assert [level.level for level in report.levels] == ["forward", "gradients", "one update", "3 updates"]
    assert all(level.max_abs_diff < 1e-5 for level in report.levels), report
    assert net.training and all(torch.equal(x, before[key]) for key, x in net.state_dict().items())
    assert all(param.grad is None for param in net.parameters())


@pytest.mark.parametrize("name", TWINS)
def test_numbers_return_from_flax_and_make_the_same_network(name):
    make, make_twin, inputs = TWINS[name]
    net, twin = make(), make_twin()
    params = bridge.convert(net, twin, inputs)
    state = bridge.convert_back(params, net, twin, inputs)
    other = make()
    with torch.no_grad():
        for param in other.parameters():
            param += 1
    other.load_state_dict(state)
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    for a, b in zip(*(jax.tree.leaves(n.eval()(*map(torch.as_tensor, given))) for n in (net, other)), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
    # From Flax to PyTorch and back, every bit is the same, also of a GRU.
    assert_trees_equal(bridge.convert(other, twin, inputs), params)


@pytest.mark.parametrize("optimiser", ["sgd", "adamw", "rmsprop", "pair"])
def test_optimisers_of_both_sides_agree(optimiser):
    given = (optimiser, 0.01)
    if optimiser == "pair":
        given = (lambda params: torch.optim.SGD(params, 0.1, momentum=0.9), optax.sgd(0.1, 0.9))
    report = parity.check(mlp(), flax_mlp(), X, LOSSES, given, updates=4)
    assert report.passed, report
    assert [level.level for level in report.levels] == ORDER


def test_losses_that_others_have_written_agree():
    """optax's and PyTorch's, on labels that come with the batch."""
    batch = {"x": X, "label": np.array([0, 1, 1, 0, 1]), "goal": X[:, :2]}

    def theirs(net, batch):
        y = net(batch["x"])
        return functional.cross_entropy(y, batch["label"]) + functional.huber_loss(y, batch["goal"])

    def ours(net, batch):
        y = net(batch["x"])
        wrong = optax.softmax_cross_entropy_with_integer_labels(y, batch["label"])
        return jnp.mean(wrong) + jnp.mean(optax.huber_loss(y, batch["goal"])), "more"

    assert parity.check(mlp(), flax_mlp(), X, (theirs, ours), batch=batch, updates=2).passed


def test_a_gru_is_what_the_documentation_of_pytorch_says():
    """r·(W h + b): with the numbers in Flax's places, computed by hand."""
    torch.manual_seed(0)
    cell, x, h = nn.GRUCell(4, 3), X[:1], X[1:2, :3]
    twin = Twin(lambda _, x, h: fnn.GRUCell(3)(h, x)[1])
    p = bridge.convert(cell, twin, (x, h))["GRUCell_0"]
    r, z = (1 / (1 + np.exp(-(x @ p[f"i{g}"]["kernel"] + p[f"i{g}"]["bias"] + h @ p[f"h{g}"]["kernel"]))) for g in "rz")
    inner = h @ p["hn"]["kernel"] + p["hn"]["bias"]
    n = np.tanh(x @ p["in"]["kernel"] + p["in"]["bias"] + r * inner)
    said = cell(torch.from_numpy(x), torch.from_numpy(h)).detach().numpy()
    np.testing.assert_allclose((1 - z) * n + z * h, said, rtol=0, atol=1e-6)


def test_without_inputs_they_are_made_up_where_that_can_be():
    assert parity.check(mlp(), flax_mlp(), optimiser=None).passed
    with pytest.raises(UsageError, match="give some as `inputs=`"):
        bridge.convert(picture_net(), flax_picture_net())


def test_inputs_by_name_and_of_any_library():
    given = {"x": torch.from_numpy(X), "h": jnp.asarray(X[:, :3])}
    report = parity.check(lstm_net(), flax_lstm_net(), given, optimiser=None)
    assert report.passed and len(report.levels) == 2


# ---- which layers belong together -----------------------------------------------------------------------------------


def pairs(*given, **options) -> dict[str, str]:
    return {pair.torch.name: pair.flax.name for pair in bridge.match(*given, **options).pairs}


def branches(net, x):
    return net.c(2 * torch.relu(net.a(x)) - net.b(x))


def abc(forward=branches) -> nn.Module:
    return Net(forward, a=lambda: nn.Linear(4, 4), b=lambda: nn.Linear(4, 4), c=lambda: nn.Linear(4, 4))


def test_branches_called_in_another_order_are_told_apart_by_a_forward_pass():
    def forward(_, x):
        second, first = fnn.Dense(4)(x), fnn.Dense(4)(x)
        return fnn.Dense(4)(2 * fnn.relu(first) - second)

    assert pairs(abc(), Twin(forward), X) == {"a": "Dense_1", "b": "Dense_0", "c": "Dense_2"}


def test_layers_that_nothing_tells_apart_are_named():
    net = Net(lambda net, x: net.a(x) + net.b(x), a=lambda: nn.Linear(4, 4), b=lambda: nn.Linear(4, 4))
    twin = Twin(lambda _, x: fnn.Dense(4)(x) + fnn.Dense(4)(x))
    with pytest.raises(UsageError, match=r'`a` and `b` have the same shape.*names=\{"a": "Dense_0", "b": "Dense_1"\}'):
        bridge.convert(net, twin, X)
    assert pairs(net, twin, X, names={"a": "Dense_1", "b": "Dense_0"}) == {"a": "Dense_1", "b": "Dense_0"}
    params = twin.init(jax.random.key(0), X)
    with pytest.raises(UsageError, match="By their shapes alone `a` and `b`"):
        bridge.convert_back(params, net)
    state = bridge.convert_back(params, net, names={"a": "Dense_1", "b": "Dense_0"})
    np.testing.assert_array_equal(state["a.weight"].T, params["params"]["Dense_1"]["kernel"])


def test_swapped_names_are_found_out():
    def forward(_, x):
        return fnn.Dense(4, name="a")(fnn.relu(fnn.Dense(4, name="b")(x)))

    net = Net(lambda net, x: net.b(torch.relu(net.a(x))), a=lambda: nn.Linear(4, 4), b=lambda: nn.Linear(4, 4))
    with pytest.raises(UsageError, match="only if it goes with `b`"):
        bridge.convert(net, Twin(forward), X)
    report = parity.check(net, Twin(forward), X, optimiser=None)
    assert report.first_failure == "forward" and "only if it goes with `b`" in str(report)
    assert parity.check(net, Twin(forward), X, optimiser=None, names={"a": "b", "b": "a"}).passed


def test_names_may_be_of_what_layers_are_in():
    class Part(fnn.Module):
        @fnn.compact
        def __call__(self, x):
            x = fnn.relu(fnn.Dense(4)(x))
            return fnn.Dense(4)(x)

    net = Net(
        lambda net, x: (net.left(x), net.right(x)),
        left=lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)),
        right=lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)),
    )
    twin = Twin(lambda _, x: (Part(name="one")(x), Part(name="two")(x)))
    found = pairs(net, twin, X, names={"left": "one", "right": "two"})
    assert found["left.2"] == "one/Dense_1" and found["right.0"] == "two/Dense_0"
    with pytest.raises(UsageError, match=r"`lefd`.*Did you mean"):
        bridge.match(net, twin, X, names={"lefd": "one"})


def test_numbers_in_names_count_only_if_both_sides_count_to_the_same():
    deep = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    class Deep(fnn.Module):
        def setup(self):
            self.layers = [fnn.Dense(4) for _ in range(3)]

        def __call__(self, x):
            for layer in self.layers[:-1]:
                x = fnn.relu(layer(x))
            return self.layers[-1](x)

    assert pairs(deep, Deep(), X) == {"0": "layers_0", "2": "layers_1", "4": "layers_2"}


# ---- twins that are not ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "twin, words",
    [
        (flax_mlp(6, 5, 2), [r"`2` \(Linear: weight \[6, 6\]", r"`layers_2` \(Dense: kernel \[6, 5\]"]),
        (fnn.Sequential([fnn.Dense(6), fnn.Dense(6)]), [r"`4` \(Linear.*no counterpart in the Flax"]),
        (fnn.Sequential([fnn.Dense(n) for n in (6, 6, 2, 3)]), [r"`layers_3` \(Dense.*no counterpart in the PyTorch"]),
        (fnn.Sequential([fnn.Dense(6, False), fnn.Dense(6), fnn.Dense(2)]), ["`0`", "Flax's has no `bias`"]),
    ],
    ids=["shape", "too few", "too many", "no bias"],
)
def test_what_does_not_fit_is_named(twin, words):
    for word in words:
        with pytest.raises(UsageError, match=word):
            bridge.convert(mlp(), twin, X)
        with pytest.raises(UsageError, match=word):
            parity.check(mlp(), twin, X)


def test_a_wrong_map_is_named():
    with pytest.raises(UsageError, match=r"`2` \(Linear.*`layers_4` \(Dense"):
        bridge.convert(mlp(), flax_mlp(), X, names={"2": "layers_4"})


@pytest.mark.parametrize(
    "net, twin, inputs, words",
    [
        (mlp, lambda: flax_mlp(act=fnn.gelu), X, "diverge before `4` ↔ `layers_4`.*`2` ↔ `layers_2` still agree"),
        (picture_net, lambda: flax_picture_net(first=False), PICTURES, "diverge before `head` ↔ `Dense_0`"),
        (picture_net, lambda: flax_picture_net(epsilon=0.1), PICTURES, "diverge in `norm` ↔ `GroupNorm_0`.*epsilon"),
        (lambda: picture_net(1), lambda: flax_picture_net(padding="SAME"), PICTURES, "cannot be called"),
        (picture_net, lambda: flax_picture_net(padding=(1, 0)), PICTURES, None),
    ],
    ids=["activation", "flattened otherwise", "epsilon", "impossible", "padding"],
)
def test_a_forward_pass_that_differs_names_the_layers(net, twin, inputs, words):
    if words is None or words == "cannot be called":  # the shapes speak against it before anything is compared
        with pytest.raises(UsageError, match=words or "The first pair that does not: `head`"):
            parity.check(net(), twin(), inputs)
        return
    report = parity.check(net(), twin(), inputs, optimiser=None)
    assert report.first_failure == "forward"
    assert re.search(words, report.where), report.where
    with pytest.raises(parity.ParityError, match="FAILED"):
        report.raise_if_failed()
    with pytest.raises(UsageError, match="not the same network"):
        JaxStep(net(), twin(), jax_loss, inputs=inputs)


FAULTS = {
    "loss": ((torch_loss, lambda net, x: jnp.mean(net(x) ** 2) * 1.001), ("adam", 1e-3), "PyTorch's loss is"),
    "gradients": (
        (torch_loss, lambda net, x: jnp.mean(net(x) * jax.lax.stop_gradient(net(x)))),
        ("sgd", 1e-3),
        "The gradient of `.*` ↔ `layers_./.*` differs most",
    ),
    "one update": (
        LOSSES,
        (lambda params: torch.optim.Adam(params, 1e-3), optax.adam(1.05e-3)),
        "look at the optimisers",
    ),
    "4 updates": (LOSSES, (lambda params: torch.optim.SGD(params, 0.5, 0.9), optax.sgd(0.5)), "changes over time"),
}


@pytest.mark.parametrize("level", FAULTS)
def test_a_planted_fault_shows_at_its_level(level):
    loss, optimiser, words = FAULTS[level]
    report = parity.check(mlp(), flax_mlp(), X, loss, optimiser, updates=4)
    assert report.first_failure == level
    assert re.search(words, report.where), report.where
    assert f"“{level}”" in str(report) and "<td>FAILED</td>" in report._repr_html_()


# ---- what cannot be compared is said in a sentence ------------------------------------------------------------------

BAD = {
    "a class": (nn.Linear, flax_mlp(), X, {}, "is a class"),
    "the wrong way round": (flax_mlp(), mlp(), X, {}, "The Flax module comes second"),
    "no Flax module": (mlp(), mlp(), X, {}, "has to be a Flax Linen module"),
    "no parameters": (nn.ReLU(), flax_mlp(), X, {}, "has no parameters"),
    "double": (mlp().double(), flax_mlp(), X, {}, "use `.float"),
    "attention": (nn.MultiheadAttention(4, 2), flax_mlp(), X, {}, "which cannot be converted"),
    "parametrised": (nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)), fnn.Dense(2), X, {}, "remove it first"),
    "lazy": (nn.LazyLinear(2), fnn.Dense(2), X, {}, "call the PyTorch module once"),
    "whole numbers": (mlp(), flax_mlp(), np.ones((2, 4), int), {}, "give float32"),
    "too wide": (mlp(), flax_mlp(), np.ones((2, 5)), {}, r"cannot be called with float32 \[2, 5\]"),
    "words": (mlp(), flax_mlp(), "x", {}, "has to be an array of numbers"),
    "Flax cannot": (mlp(), Twin(lambda _, x: fnn.Dense(2)(x) @ x), X, {}, "The Flax module `Twin` cannot be called"),
    "other outputs": (nn.Linear(4, 2), Twin(lambda _, x: (fnn.Dense(2)(x), x)), X, {}, "the same number of arrays"),
    "random": (
        Net(lambda net, x: net.a(x) + torch.rand(5, 2), a=lambda: nn.Linear(4, 2)),
        fnn.Dense(2),
        X,
        {},
        "not deterministic",
    ),
    "one loss": (mlp(), flax_mlp(), X, {"loss": torch_loss}, "pair of functions"),
    "loss of outputs": (mlp(), flax_mlp(), X, {"loss": (torch.sum, jnp.sum)}, "called as loss.net, batch"),
    "loss of many": (mlp(), flax_mlp(), X, {"loss": (torch_loss, lambda net, x: net(x))}, "has to return one number"),
    "loss of another": (
        mlp(),
        flax_mlp(),
        X,
        {"loss": (lambda net, x: x.sum(), jax_loss)},
        "does not depend on its `net`",
    ),
    "optimiser": (mlp(), flax_mlp(), X, {"optimiser": ("adamm", 1e-3)}, "Did you mean `adam`"),
    "no rate": (mlp(), flax_mlp(), X, {"optimiser": "adam"}, "has no learning rate"),
    "half a pair": (mlp(), flax_mlp(), X, {"optimiser": optax.sgd(0.1)}, "or a pair"),
    "updates": (mlp(), flax_mlp(), X, {"updates": 0}, "at least 1"),
    "names": (mlp(), flax_mlp(), X, {"names": ["0"]}, "has to be a dict"),
    "tolerance": (mlp(), flax_mlp(), X, {"tolerances": {"loss": "1"}}, "has to be a number"),
    "level": (mlp(), flax_mlp(), X, {"tolerances": {"forwards": 1.0}}, "Did you mean `forward`"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_compared_is_said_in_a_sentence(name):
    net, twin, inputs, options, words = BAD[name]
    with pytest.raises(UsageError, match=words):
        parity.check(net, twin, inputs, **options)


def test_neither_library_is_loaded_before_it_is_used_and_pytorch_is_asked_for():
    code = (
        "import sys; sys.modules['torch'] = None; import xladder; xladder.parity\n"
        "assert 'jax' not in sys.modules\n"
        "from xladder.errors import UsageError\n"
        "for name in ('bridge', 'hybrid'):\n"
        "    try: getattr(xladder, name)\n"
        '    except UsageError as error: assert "[torch]\'" in str(error)\n'
        "    else: raise SystemExit(name)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- PyTorch acts, JAX learns ---------------------------------------------------------------------------------------


def train_torch(net, batches, optimiser):
    losses = []
    for batch in batches:
        optimiser.zero_grad()
        loss = torch_loss(net, torch.from_numpy(batch))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", ["linear", "embedding, norm, GRU, parameter"])
def test_the_hybrid_step_trains_the_module_as_pytorch_would(name):
    make, make_twin, inputs = TWINS[name]
    net, alone = make(), make()
    batches = [np.roll(inputs, i, axis=1) for i in range(5)]
    trainer = JaxStep(net, make_twin(), jax_loss, ("adam", 0.01), inputs=inputs)
    held = next(net.parameters())
    losses = [trainer.step(batch) for batch in batches]
    np.testing.assert_allclose(losses, train_torch(alone, batches, torch.optim.Adam(alone.parameters(), 0.01)), 1e-4)
    assert losses[-1] < losses[0] and held is next(net.parameters())
    for a, b in zip(net.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-4)  # a hundredth of one step


def test_the_hybrid_step_leaves_frozen_parameters_goes_on_from_a_state_and_returns_more():
    net = mlp()
    net[0].weight.requires_grad_(False)
    frozen = net[0].weight.clone()

    def loss(net, batch):
        y = net(batch["x"])
        return jnp.mean((y - batch["goal"]) ** 2), {"largest": jnp.max(y)}

    batch = {"x": torch.from_numpy(X), "goal": X[:, :2]}
    trainer = JaxStep(net, flax_mlp(), loss, optax.sgd(0.1, 0.9), has_aux=True)
    trainer.step(batch)
    state = trainer.state()
    first = [trainer.step(batch) for _ in range(2)]
    trainer.take_state(state)
    assert [trainer.step(batch) for _ in range(2)] == first
    assert torch.equal(net[0].weight, frozen)
    assert set(first[0][1]) == {"largest"}
    np.testing.assert_array_equal(trainer.params["layers_4"]["bias"], net[4].bias.detach())
    with torch.no_grad():
        net[4].bias += 1
    trainer.reload()
    np.testing.assert_array_equal(trainer.params["layers_4"]["bias"], net[4].bias.detach())


def test_what_the_hybrid_step_cannot_do_is_said_in_a_sentence():
    with pytest.raises(UsageError, match="use a LayerNorm"):
        JaxStep(noisy_net(), flax_noisy_net(), jax_loss, inputs=X)
    with pytest.raises(UsageError, match=r"a batch of float32 \[2, 9\]"):
        JaxStep(mlp(), flax_mlp(), jax_loss).step(np.ones((2, 9)))
    with pytest.raises(UsageError, match="has to be a function"):
        JaxStep(mlp(), flax_mlp(), 3)
