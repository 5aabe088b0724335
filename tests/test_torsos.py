"""Torsos: equal to their PyTorch twins forwards and backwards, whichever way a convolution is computed."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from xladder.nets import torsos, torsos_torch
from xladder.nets.affine import PlainDense
from xladder.workloads.torsos import suited, takes

BATCH = 3


def pictures(rng, *shape):
    return rng.integers(0, 256, shape, dtype=np.uint8)


def grids(rng, *shape):
    return rng.random(shape) < 0.3


def vectors(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


# name: torso, its twin, one state's shape, what states are made of
CASES = {
    "mlp": (torsos.Mlp((24, 16)), torsos_torch.Mlp(2 * 5, (24, 16)), (2, 5), vectors),
    "mlp_of_grids": (torsos.Mlp((12,), axes=3), torsos_torch.Mlp(2 * 4 * 3, (12,)), (2, 4, 3), grids),
    "mlp_norm": (torsos.Mlp((24, 16), norm=True), torsos_torch.Mlp(2 * 5, (24, 16), norm=True), (2, 5), vectors),
    "nature": (torsos.NatureCnn(), torsos_torch.NatureCnn(), (4, 84, 84), pictures),
    "nature_odd": (torsos.NatureCnn(), torsos_torch.NatureCnn(frames=1), (1, 45, 50), pictures),
    "nature_norm": (torsos.NatureCnn(norm=True), torsos_torch.NatureCnn(norm=True), (4, 44, 44), pictures),
    "minatar": (torsos.MinAtarCnn(), torsos_torch.MinAtarCnn(4), (1, 10, 10, 4), grids),
    "minatar_stack": (torsos.MinAtarCnn(), torsos_torch.MinAtarCnn(6, frames=3), (3, 10, 7, 6), grids),
    "minatar_norm": (torsos.MinAtarCnn(norm=True), torsos_torch.MinAtarCnn(4, norm=True), (1, 10, 10, 4), grids),
}
CONVOLUTIONS = [name for name in CASES if not name.startswith("mlp")]


def make_params(net, state, seed=0):
    """Parameters for one state; those of norms are moved off their ones and zeros."""
    params = jax.jit(net.init)(jax.random.key(seed), state)["params"]
    rng = np.random.default_rng(seed)
    return {
        layer: {
            name: np.asarray(values) + (rng.normal(0, 0.3, values.shape).astype(np.float32) if "norm" in layer else 0)
            for name, values in leaves.items()
        }
        for layer, leaves in params.items()
    }


def to_torch(params):
    """The same parameters under PyTorch's names and in its order of axes."""
    names = {"kernel": "weight", "scale": "weight", "bias": "bias"}
    turn = {1: lambda v: v, 2: np.transpose, 4: lambda v: v.transpose(3, 2, 0, 1)}
    return {
        f"{layer}.{names[name]}": torch.tensor(turn[np.ndim(v)](np.asarray(v)).copy())
        for layer, leaves in params.items()
        for name, v in leaves.items()
    }


def setup(name, *lead, seed=1, **fields):
    net, twin, shape, draw = CASES[name]
    x = draw(np.random.default_rng(seed), *lead, *shape)
    net = net.clone(**fields)
    return net, twin, make_params(net, x.reshape(-1, *shape)[0]), x


def features(net, params, x):
    return np.asarray(jax.jit(net.apply)({"params": params}, x))


def gradients(net, params, x, weights):
    """Of a sum of squares with weights, which tells every feature apart."""
    return jax.jit(jax.grad(lambda params: jnp.sum(weights * net.apply({"params": params}, x) ** 2)))(params)


def weights_for(shape):
    return np.random.default_rng(2).normal(size=shape).astype(np.float32)


def assert_close(ours, theirs, tolerance, what=""):
    """To a share of the largest entry: sums in another order differ by that, wherever they end up."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max(), err_msg=what)


@pytest.mark.parametrize("patches", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_the_pytorch_twin_agrees_in_value_and_gradient(name, patches):
    if name not in CONVOLUTIONS:
        if not patches:
            pytest.skip("there is one way only")
        fields = {}
    else:
        fields = {"patches": patches}
    net, twin, params, x = setup(name, BATCH, **fields)
    twin.load_state_dict(to_torch(params), strict=True)
    twin.zero_grad()
    said = twin(torch.tensor(x))
    ours = features(net, params, x)
    assert ours.dtype == np.float32
    assert ours.shape == said.shape
    assert (ours == 0).any() and (ours > 0).mean() > 0.1
    assert_close(ours, said.detach(), 2e-6)  # float32 sums of up to 576 terms
    weights = weights_for(ours.shape)
    (torch.tensor(weights) * said**2).sum().backward()
    expected = {path: value.grad for path, value in twin.named_parameters()}
    found = to_torch(gradients(net, params, x, weights))
    assert found.keys() == expected.keys()
    for path, gradient in found.items():
        assert_close(gradient, expected[path], 2e-5, path)  # sums over up to 1200 cells of those


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_products_are_the_same_convolution(name, dtype):
    tolerance = 5e-6 if dtype == jnp.float32 else 5e-3  # the second layer's inputs are rounded to 8 bits
    net, _, params, x = setup(name, BATCH, dtype=dtype)
    other = net.clone(patches=False)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, make_params(other, x[0]))
    assert_close(features(net, params, x), features(other, params, x), tolerance)
    weights = weights_for(features(net, params, x).shape)
    ours, theirs = (gradients(each, params, x, weights) for each in (net, other))
    for layer in ours:
        for leaf in ours[layer]:
            assert_close(ours[layer][leaf], theirs[layer][leaf], 4 * tolerance, f"{layer}.{leaf}")


@pytest.mark.parametrize("name", ["mlp_norm", "mlp_of_grids", "nature_odd", "minatar_stack"])
def test_any_leading_axes_are_states_of_a_batch(name):
    net, _, params, x = setup(name, 2, BATCH)
    shape = x.shape[2:]
    both = features(net, params, x)
    one = features(net, params, x.reshape(-1, *shape))
    none = features(net, params, x[1, 2])
    assert both.shape == (2, BATCH, one.shape[-1])
    assert one.shape[:-1] == (2 * BATCH,)
    assert none.shape == one.shape[1:]
    assert_close(both.reshape(one.shape), one, 1e-6)
    assert_close(none, both[1, 2], 1e-6)
    mapped = jax.jit(jax.vmap(lambda x: net.apply({"params": params}, x)))(x)
    assert_close(mapped, both, 1e-6)


@pytest.mark.parametrize("name", ["mlp", "nature", "nature_norm", "minatar"])
def test_bfloat16_is_close_and_leaves_float32(name):
    net, _, params, x = setup(name, BATCH)
    halved = net.clone(dtype=jnp.bfloat16)
    exact, rounded = features(net, params, x), features(halved, params, x)
    assert rounded.dtype == np.float32
    assert {v.dtype for v in jax.tree.leaves(make_params(halved, x[0]))} == {np.dtype(np.float32)}
    assert_close(rounded, exact, 0.02)  # 8 bits in each factor, errors mostly cancelling
    assert np.abs(rounded - exact).max() > 1e-4 * np.abs(exact).max()  # it is another precision indeed
    # Sums are not rounded: few features are numbers of 8 bits.
    assert (rounded != np.asarray(jnp.asarray(rounded, jnp.bfloat16), np.float32)).mean() > 0.3
    weights = weights_for(exact.shape)
    ours, theirs = (gradients(each, params, x, weights) for each in (halved, net))
    for layer in ours:
        for leaf, gradient in ours[layer].items():
            assert gradient.dtype == jnp.float32
            assert_close(gradient, theirs[layer][leaf], 0.05, f"{layer}.{leaf}")


def test_a_dense_layer_in_float32_is_the_plain_product():
    x = vectors(np.random.default_rng(0), 7, 5)
    layer = PlainDense(4)
    params = layer.init(jax.random.key(0), x)
    plain = jnp.asarray(x) @ params["params"]["kernel"] + params["params"]["bias"][None, :]
    np.testing.assert_array_equal(layer.apply(params, x), plain)


@pytest.mark.parametrize(
    ("name", "layer", "inputs"),
    [("mlp", "hidden_0", 10), ("nature", "conv_0", 256), ("nature", "conv_2", 576), ("minatar", "conv_0", 36)],
)
def test_weights_begin_uniform_within_the_bound_of_pytorch(name, layer, inputs):
    _, _, params, _ = setup(name)
    bound = inputs**-0.5
    for values in params[layer].values():
        assert np.abs(values).max() <= bound
    kernel = params[layer]["kernel"]
    assert np.prod(kernel.shape[:-1]) == inputs
    assert kernel.std() == pytest.approx(bound / np.sqrt(3), rel=0.1)  # of a uniform distribution


def test_features_are_as_many_as_published():
    assert features(*setup("nature", 1)[::2], setup("nature", 1)[3]).shape == (1, 3136)
    assert features(*setup("minatar", 1)[::2], setup("minatar", 1)[3]).shape == (1, 1024)


def test_255_stands_for_1():
    net, _, params, _ = setup("nature_odd")
    white = np.full((1, 45, 50), 255, np.uint8)
    first = {"conv_0": {k: np.abs(v) for k, v in params["conv_0"].items()}}
    said = torsos.Conv(32, 8, 4, True, jnp.float32, True).apply({"params": first["conv_0"]}, white[None])
    expected = first["conv_0"]["kernel"].sum((0, 1, 2)) + first["conv_0"]["bias"]
    np.testing.assert_allclose(said[0, 3, 5], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "torso"),
    [
        ((), "mlp"),
        ((4,), "mlp"),
        ((84, 84), "nature"),
        ((36, 40), "nature"),
        ((35, 84), None),
        ((10, 10, 4), "minatar"),
        ((3, 3, 1), "minatar"),
        ((10, 2, 4), None),
        ((84, 84, 3, 2), None),
    ],
)
def test_frames_find_the_torso_that_can_take_them(shape, torso):
    assert suited(shape) == torso
    assert [name for name in ("mlp", "nature", "minatar") if takes(name, shape)] == [torso] * (torso is not None)


@pytest.mark.parametrize(
    ("net", "shape"),
    [(torsos.NatureCnn(), (1, 36, 36)), (torsos.MinAtarCnn(), (1, 3, 3, 1)), (torsos.Mlp((3,), axes=1), (2,))],
)
def test_the_smallest_frames_leave_something(net, shape):
    assert takes({"NatureCnn": "nature", "MinAtarCnn": "minatar", "Mlp": "mlp"}[type(net).__name__], shape[1:])
    said = jax.eval_shape(net.init_with_output, jax.random.key(0), jnp.zeros(shape, jnp.uint8))[0]
    assert said.shape == ({"NatureCnn": 64, "MinAtarCnn": 16, "Mlp": 3}[type(net).__name__],)


def test_an_unknown_torso_is_an_error():
    with pytest.raises(ValueError, match="`resnet`"):
        takes("resnet", (84, 84))


def test_asking_which_torso_is_suited_imports_nothing_heavy():
    code = "import sys, xladder.workloads.torsos; sys.exit('jax' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
