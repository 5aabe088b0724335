"""Heads: every kind × dueling × noise is what its formula says, in NumPy and in PyTorch, in value and gradient.

The formulas are written out in float64 below.

Shapes: B batch, E features, Q fractions, Z numbers per action, A actions.
"""

from functools import cache, partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from xladder import bridge
from xladder.nets import value_torch
from xladder.nets.heads import Head
from xladder.nets.noisy import noise_size, split_noise
from xladder.nets.torsos import Mlp
from xladder.nets.value import ValueNet

BATCH, FEATURES, WIDTH, ACTIONS, FRACTIONS, COSINES = 5, 7, 6, 3, 4, 8
# A categorical head and one of quantiles are the same head; what its numbers mean is the learner's business.
KINDS = {"scalar": {}, "atoms": {"atoms": 5}, "implicit": {"cosines": COSINES}}
BRANCHES = {"plain": {}, "apart": {"dueling": True}, "shared": {"dueling": True, "apart": False}}
NOISES = {"quiet": {}, "independent": {"sigma": 0.5, "factorised": False}, "factorised": {"sigma": 0.5}}
EVERY = list(product(KINDS, BRANCHES, NOISES))
DUELING = [(kind, branches, noise) for kind, branches, noise in EVERY if branches != "plain"]
FACTORISED = [(kind, branches, noise) for kind, branches, noise in EVERY if noise == "factorised"]
IMPLICIT = [(kind, branches, noise) for kind, branches, noise in EVERY if kind == "implicit"]

# Sums of 8 products of numbers about 1, rounded to float32, against the same in float64; gradients add up 5·4 of them.
VALUES, GRADIENTS = 5e-6, 5e-5


def make(kind: str, branches: str, noise: str, **fields) -> Head:
    return Head(ACTIONS, FEATURES, WIDTH, **KINDS[kind], **BRANCHES[branches], **NOISES[noise], **fields)


@cache
def features() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(BATCH, FEATURES)).astype(np.float32)


@cache
def fractions() -> np.ndarray:
    return np.random.default_rng(1).random((BATCH, FRACTIONS), dtype=np.float32)


def size(head: Head) -> int:
    return noise_size(head.noise_shapes(), head.factorised)


def normals(head: Head, *rows: int) -> np.ndarray:
    return np.random.default_rng(2).normal(size=(*rows, size(head))).astype(np.float32)


@cache
def drawn(head: Head) -> dict:
    """Parameters of a head, none of them alike: scales of noise begin all equal, which would hide an exchange."""

    def init(normals):
        return head.init(jax.random.key(0), features(), fractions(), noise_of(head, normals))

    shapes, rng = jax.eval_shape(init, normals(head))["params"], np.random.default_rng(3)
    return jax.tree.map(lambda leaf: (0.5 * rng.normal(size=leaf.shape)).astype(np.float32), shapes)


def noise_of(head: Head, normals):
    """Normals as the noise of a head's layers; to be called while a program is traced, or every cut is compiled."""
    shapes = head.noise_shapes()
    return split_noise(normals, shapes, head.factorised) if shapes else None


def apply(head: Head, params, features, taus, normals):
    return head.apply({"params": params}, features, taus, noise_of(head, normals))


@cache
def answers() -> dict:
    """What every head says: in one program, because compiling is what takes long.

    `noisy` with noise, `quiet` without, `own` with noise for every row; `gradients` of Σ weight · noisy by parameters
    and features; `mean` and `own_mean` of the quantiles by the way of acting.
    """
    heads = {which: make(*which) for which in EVERY}

    def ask(head: Head, params, seen, taus, normals, own):
        def loss(params, seen):
            outputs = apply(head, params, seen, taus, normals)
            return jnp.sum(jnp.asarray(weights(head)) * outputs), outputs

        (_, noisy), gradients = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, seen)
        found = {"noisy": noisy, "gradients": gradients}
        if head.sigma is not None and head.dueling and head.apart:
            found["quiet"] = head.apply({"params": params}, seen, taus)
        if own is not None:
            found["own"] = apply(head, params, seen, taus, own)
        if head.cosines:
            embedding = found["embedding"] = head.apply({"params": params}, taus, method="embed")
            act = partial(head.apply, {"params": params}, seen, embedding, method="mean_of_embedded")
            found["mean"] = act(noise_of(head, normals))
            if own is not None:
                found["own_mean"] = act(noise_of(head, own))
        return found

    def ask_all(given, seen, taus):
        return {which: ask(head, given[which][0], seen, taus, *given[which][1:]) for which, head in heads.items()}

    given = {
        which: (drawn(head), normals(head), normals(head, BATCH) if which in FACTORISED else None)
        for which, head in heads.items()
    }
    return jax.device_get(jax.jit(ask_all)(given, features(), fractions()))


def weights(head: Head) -> np.ndarray:
    """float32 [B, Z, A]: what a gradient is taken along."""
    return (
        np.random.default_rng(4)
        .normal(size=(BATCH, head.atoms * max(1, bool(head.cosines) * FRACTIONS), ACTIONS))
        .astype(np.float32)
    )


def torch_head(head: Head) -> value_torch.Head:
    """A head in PyTorch with the same settings."""
    settings = ["actions", "features", "width", "atoms", "cosines", "dueling", "apart", "sigma", "factorised"]
    return value_torch.Head(**{name: getattr(head, name) for name in settings})


def twin(head: Head) -> value_torch.Head:
    """The head in PyTorch with the same parameters."""
    other = torch_head(head)
    named = bridge.to_torch("value", {"head": drawn(head)})
    other.load_state_dict({name.removeprefix("head."): values for name, values in named.items()})
    return other


def formula(head: Head, row: np.ndarray, taus: np.ndarray, drawn_normals: np.ndarray | None, params=None) -> np.ndarray:
    """float64 [Z, A]: what a head says of one state; weights with noise are multiplied out."""
    params = jax.tree.map(lambda leaf: leaf.astype(np.float64), params or drawn(head))
    weights, start = {}, 0
    for name, inputs, outputs in head.noise_shapes():
        layer = params[name]
        kernel, bias = layer["kernel"], layer["bias"]
        if drawn_normals is not None:
            count = inputs + outputs if head.factorised else (inputs + 1) * outputs
            mine, start = drawn_normals[start : start + count].astype(np.float64), start + count
            if head.factorised:
                f = np.sign(mine) * np.sqrt(np.abs(mine))
                a, b = f[:inputs], f[inputs:]
                kernel, bias = kernel + layer["sigma_kernel"] * np.outer(a, b), bias + layer["sigma_bias"] * b
            else:
                kernel = kernel + layer["sigma_kernel"] * mine[: inputs * outputs].reshape(inputs, outputs)
                bias = bias + layer["sigma_bias"] * mine[inputs * outputs :]
        weights[name] = kernel, bias
    for name in params.keys() - weights.keys():
        weights[name] = params[name]["kernel"], params[name]["bias"]

    def dense(name: str, x: np.ndarray) -> np.ndarray:
        return x @ weights[name][0] + weights[name][1]

    def judge(x: np.ndarray) -> np.ndarray:
        hidden = np.maximum(dense("hidden", x), 0)
        advantage = dense("advantage", hidden).reshape(head.atoms, ACTIONS)
        if not head.dueling:
            return advantage
        if head.apart:
            hidden = np.maximum(dense("value_hidden", x), 0)
        return dense("value", hidden)[:, None] + advantage - advantage.mean(1, keepdims=True)

    if not head.cosines:
        return judge(row)
    cosines = np.cos(np.pi * taus.astype(np.float64)[:, None] * np.arange(1, COSINES + 1))
    embedded = np.maximum(dense("embedding", cosines), 0)
    return np.stack([judge(row * one)[0] for one in embedded])


def by_formula(head: Head, *rows_of_noise: np.ndarray | None, params=None) -> np.ndarray:
    """float64 [B, Z, A]: with the same noise for all rows, or with one for each."""
    noises = rows_of_noise * BATCH if len(rows_of_noise) == 1 else rows_of_noise
    return np.stack([formula(head, *row, params) for row in zip(features(), fractions(), noises, strict=True)])


def assert_close(ours, theirs, share=VALUES):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=share * np.abs(theirs).max())


@pytest.mark.parametrize("which", EVERY, ids="-".join)
def test_every_head_is_its_formula(which):
    head, outputs = make(*which), answers()[which]
    kind, branches, _ = which
    layers = {"hidden", "advantage", *["embedding"] * (kind == "implicit"), *["value"] * (branches != "plain")}
    assert set(drawn(head)) == layers | ({"value_hidden"} if branches == "apart" else set())
    numbers = {"scalar": 1, "atoms": 5, "implicit": FRACTIONS}[kind]
    assert outputs["noisy"].shape == (BATCH, numbers, ACTIONS)
    assert outputs["noisy"].dtype == np.float32
    wanted = by_formula(head, normals(head) if size(head) else None)
    assert_close(outputs["noisy"], wanted)
    if "quiet" in outputs:
        assert_close(outputs["quiet"], by_formula(head, None))
        assert np.abs(outputs["quiet"] - wanted).max() > 0.1, "noise makes no difference"


@pytest.mark.parametrize("which", EVERY, ids="-".join)
def test_the_pytorch_twin_agrees_in_value_and_gradient(which):
    head, outputs = make(*which), answers()[which]
    other, given = twin(head), torch.from_numpy(features()).requires_grad_()
    answer = other(given, torch.from_numpy(fractions()), other.split_noise(torch.from_numpy(normals(head))))
    (torch.from_numpy(weights(head)) * answer).sum().backward()
    assert_close(outputs["noisy"], answer.detach().numpy())
    named = {f"head.{name}": param.grad for name, param in other.named_parameters()}
    theirs = bridge.to_jax("value", named)["head"], given.grad.numpy()
    assert jax.tree.structure(outputs["gradients"]) == jax.tree.structure(theirs)
    for ours, their in zip(jax.tree.leaves(outputs["gradients"]), jax.tree.leaves(theirs), strict=True):
        assert np.abs(ours).max() > 0
        assert_close(ours, their, GRADIENTS)


@pytest.mark.parametrize("which", DUELING, ids="-".join)
def test_advantages_have_mean_zero_so_the_mean_over_actions_is_the_value(which):
    head, outputs = make(*which), answers()[which]
    mute = jax.tree.map(np.copy, drawn(head))
    for name in mute["advantage"]:
        mute["advantage"][name][:] = 0
    value = by_formula(head, normals(head) if size(head) else None, params=mute)
    np.testing.assert_allclose(value, value[..., :1].repeat(ACTIONS, -1), atol=1e-12)  # the same for all actions
    assert_close(outputs["noisy"].mean(-1), value[..., 0])
    assert np.abs(outputs["noisy"] - value).max() > 0.1


@pytest.mark.parametrize("which", FACTORISED, ids="-".join)
def test_every_row_may_have_noise_of_its_own(which):
    head, outputs = make(*which), answers()[which]
    own = normals(head, BATCH)
    assert_close(outputs["own"], by_formula(head, *own))
    other = twin(head)
    with torch.no_grad():
        answer = other(
            torch.from_numpy(features()), torch.from_numpy(fractions()), other.split_noise(torch.tensor(own))
        )
    assert_close(outputs["own"], answer.numpy())


@pytest.mark.parametrize("which", IMPLICIT, ids="-".join)
def test_the_mean_before_the_outputs_is_the_mean_of_the_quantiles(which):
    outputs = answers()[which]
    assert outputs["embedding"].shape == (BATCH, FRACTIONS, FEATURES)
    for mean, quantiles in [("mean", "noisy"), *[("own_mean", "own")] * ("own" in outputs)]:
        assert outputs[mean].shape == (BATCH, ACTIONS)
        np.testing.assert_allclose(
            outputs[mean], outputs[quantiles].mean(1), rtol=0, atol=VALUES * np.abs(outputs[quantiles]).max()
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lead", [(), (2, 3)], ids=["one state", "two axes"])
def test_any_leading_axes_are_states_of_a_batch(kind, lead):
    head = make(kind, "apart", "factorised")
    rng = np.random.default_rng(5)
    many = rng.normal(size=(*lead, FEATURES)).astype(np.float32)
    taus = rng.random((*lead, FRACTIONS), dtype=np.float32)
    outputs = np.asarray(jax.jit(partial(apply, head))(drawn(head), many, taus, normals(head)))
    assert outputs.shape[: len(lead)] == lead
    rows = zip(many.reshape(-1, FEATURES), taus.reshape(-1, FRACTIONS), strict=True)
    one_by_one = np.stack([formula(head, *row, normals(head)) for row in rows])
    assert_close(outputs.reshape(-1, *outputs.shape[-2:]), one_by_one)


def test_factors_are_cut_into_pieces_that_do_not_overlap():
    head = make("atoms", "apart", "factorised")
    shapes = head.noise_shapes()
    assert shapes == (("hidden", 7, 6), ("advantage", 6, 15), ("value", 6, 5), ("value_hidden", 7, 6))
    assert size(head) == 7 + 6 + 6 + 15 + 6 + 5 + 7 + 6
    assert size(make("atoms", "apart", "independent")) == 8 * 6 + 7 * 15 + 7 * 5 + 8 * 6
    assert size(make("atoms", "apart", "quiet")) == 0
    squares = np.arange(1, size(head) + 1, dtype=np.float32) ** 2  # f takes the roots of these
    noise = jax.jit(lambda normals: split_noise(normals, shapes, factorised=True))(-squares)
    pieces = [piece for name, *_ in shapes for piece in noise[name]]
    assert [piece.shape for piece in pieces] == [(7,), (6,), (6,), (15,), (6,), (5,), (7,), (6,)]
    np.testing.assert_allclose(np.concatenate(pieces), -np.arange(1, size(head) + 1), rtol=1e-6)


@pytest.mark.parametrize("side", ["jax", "torch"])
@pytest.mark.parametrize(("factorised", "bound", "spread"), [(True, 1 / 20, 0.5 / 20), (False, 3**0.5 / 20, 0.5)])
def test_noisy_weights_begin_as_published(side, factorised, bound, spread):
    head = Head(2, 400, 100, sigma=0.5, factorised=factorised)  # √400 = 20
    if side == "jax":
        layer = jax.jit(head.init)(jax.random.key(0), jnp.zeros((400,)))["params"]["hidden"]
    else:
        torch.manual_seed(0)
        named = {f"head.{name}": values for name, values in torch_head(head).state_dict().items()}
        layer = bridge.to_jax("value", named)["head"]["hidden"]
    for name in ("kernel", "bias"):
        assert 0.9 * bound < np.abs(layer[name]).max() <= bound
        np.testing.assert_allclose(layer[f"sigma_{name}"], spread, rtol=1e-6)
    assert np.std(layer["kernel"]) == pytest.approx(bound / 3**0.5, rel=0.02)


def test_normalised_hidden_layers_have_mean_0_and_variance_1_before_they_are_scaled_and_cut_off():
    head = make("scalar", "apart", "quiet", norm=True)
    params = drawn(head)
    assert {"hidden_norm", "value_hidden_norm"} <= set(params)

    def dense(name, x):
        return x @ params[name]["kernel"] + params[name]["bias"]

    def hidden(name):
        x, norm = dense(name, features()), params[f"{name}_norm"]
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        return np.maximum(x * norm["scale"] + norm["bias"], 0)

    advantage = dense("advantage", hidden("hidden"))
    wanted = dense("value", hidden("value_hidden")) + advantage - advantage.mean(1, keepdims=True)
    outputs = jax.jit(head.apply)({"params": params}, features())
    assert_close(outputs[:, 0], wanted)


@pytest.mark.parametrize("kind", ["atoms", "implicit"])
def test_bfloat16_rounds_what_is_multiplied_and_leaves_float32(kind):
    exact, rounded = (make(kind, "apart", "factorised", dtype=dtype) for dtype in (jnp.float32, jnp.bfloat16))
    given = drawn(exact), features(), fractions(), normals(exact, BATCH)
    one, other = jax.device_get(jax.jit(lambda *given: [apply(head, *given) for head in (exact, rounded)])(*given))
    assert other.dtype == jnp.float32
    difference = np.abs(one - other).max()
    assert 1e-4 < difference < 0.03 * np.abs(one).max()  # 8 bits, a few products one after another


def test_in_bfloat16_activations_of_fractions_are_kept_in_it_and_gradients_in_float32():
    head = make("implicit", "apart", "factorised", dtype=jnp.bfloat16)
    given = drawn(head), features(), fractions(), normals(head, BATCH)
    assert head.apply({"params": given[0]}, fractions(), method="embed").dtype == jnp.bfloat16
    gradient = jax.jit(jax.grad(lambda params: jnp.sum(apply(head, params, *given[1:]) ** 2)))(given[0])
    exact = make("implicit", "apart", "factorised")
    wanted = jax.jit(jax.grad(lambda params: jnp.sum(apply(exact, params, *given[1:]) ** 2)))(given[0])
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype(jnp.float32)}
    for one, other in zip(*map(jax.tree.leaves, (gradient, wanted)), strict=True):
        assert 0 < np.abs(one - other).max() < 0.05 * np.abs(other).max()


def test_a_value_net_is_its_head_on_what_its_torso_sees():
    head = make("implicit", "apart", "factorised")
    net = ValueNet(Mlp((FEATURES,)), head)
    states = np.random.default_rng(6).normal(size=(BATCH, 2, 3)).astype(np.float32)
    rng = np.random.default_rng(7)
    torso = {"kernel": rng.normal(size=(6, FEATURES)), "bias": rng.normal(size=FEATURES)}
    params = {"torso": {"hidden_0": jax.tree.map(np.float32, torso)}, "head": drawn(head)}

    @jax.jit
    def ask(params, normals):
        variables, noise = {"params": params}, noise_of(head, normals)
        embedding = net.apply(variables, fractions(), method="embed")
        mean = net.apply(variables, states, embedding, noise, method="mean_of_embedded")
        return net.apply(variables, states, fractions(), noise), mean

    outputs, mean = ask(params, normals(head))
    seen = np.maximum(states.reshape(BATCH, 6) @ torso["kernel"] + torso["bias"], 0)
    wanted = np.stack([formula(head, *row, normals(head)) for row in zip(seen, fractions(), strict=True)])
    assert_close(outputs, wanted)
    np.testing.assert_allclose(mean, wanted.mean(1), rtol=0, atol=VALUES * np.abs(wanted).max())
