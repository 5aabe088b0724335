"""One sampler for a range of conditions, and the plain sampler that it is at one of them.

A condition enters the network as a term of the first layer's bias, as a factor of the forward logits (Kim et al. 2024,
"Learning to scale logits for temperature-conditional GFlowNets"), and in log Z, each interpolated between values
learned at N knots. The condition is an exponent, or the weights of several rewards (`preferences.py`). At a fixed
condition these are constants, so `fix` gives parameters of a network without conditions and settings of a world with
the reward under that condition: whatever works for a plain sampler works for them.

Shapes: S seeds, N knots, P numbers that say where a condition lies among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.core.types import Params
from xladder.errors import UsageError
from xladder.families.gflownet import preferences
from xladder.worlds.flow_conditioned import ConditionedSettings, format_condition

if TYPE_CHECKING:
    from xladder.families.gflownet.config import GFlowNetConfig


Condition = float | tuple[float, ...]
"""An exponent, or the weights of reward terms."""


def check(config: GFlowNetConfig, condition: Condition) -> None:
    """Raise a `UsageError` for a condition outside the range that a sampler was trained for."""
    if not config.conditional:
        raise UsageError("This sampler has no condition: train one with `--learner.condition beta`.")
    if config.preferential:
        return preferences.check(condition if isinstance(condition, tuple) else (condition,), config.world.num_terms)
    if isinstance(condition, tuple):
        raise UsageError(f"The condition is {len(condition)} numbers, but that of this sampler is one exponent.")
    low, high = config.learner.condition_low, config.learner.condition_high
    if not low <= condition <= high:
        raise UsageError(f"The condition is {condition:g}, but this sampler was trained for {low:g} to {high:g}.")


def needed(config: GFlowNetConfig) -> str:
    """What has to be given as a condition, for messages."""
    if config.preferential:
        return f"{config.world.num_terms} weights that add up to 1, with commas between them"
    return f"a number from {config.learner.condition_low:g} to {config.learner.condition_high:g}"


def fix(config: GFlowNetConfig, params: Params, condition: Condition) -> tuple[Any, Params]:
    """Settings and parameters, leaves […], of the plain sampler at a condition."""
    check(config, condition)
    if isinstance(condition, tuple):
        condition = tuple(weight / sum(condition) for weight in condition)  # typed as 0.333, say
    at = _hats(_place(config, condition), config.lattice)
    fixed = {name: _without_condition(branch, at) for name, branch in params.items() if name != "logit_scale"}
    if "logit_scale" in params:
        scale = np.exp(np.asarray(params["logit_scale"]) @ at)[..., None]  # […, 1]
        for name in {"forward_head", "stop_head"} & set(params):  # a transformer has its own for stop
            head = params[name]
            kernel, bias = np.asarray(head["kernel"]), np.asarray(head["bias"])
            fixed[name] = {"kernel": kernel * scale[..., None], "bias": bias * scale}
    if "log_z" in params:
        fixed["log_z"] = np.asarray(params["log_z"]) @ at
    world = ConditionedSettings(config.world, condition, config.learner.scalarisation)
    return replace(config, world=world, learner=replace(config.learner, condition="none")), fixed


def label(condition: Condition) -> str:
    """A condition in the name of a column."""
    if isinstance(condition, tuple):
        return "weights_" + "_".join(f"{weight:.3g}" for weight in condition)
    return f"beta_{condition:g}"


def at_the_middle(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns whose values are those at the middle condition, which is pictured, instead of means over conditions."""
    found = dict(columns)
    for name in ("tv", "modes", "correlation"):
        each = [column for column in columns if column.startswith((f"{name}_beta_", f"{name}_weights_"))]
        if each:
            found[name] = columns[each[len(each) // 2]]
    return found


def describe(score: Mapping[str, Any]) -> list[str]:
    """The evaluations at all conditions, one line each."""
    lines = []
    for each in score["conditions"]:
        if "tv" in each:
            rest = f"total variation {each['tv']:.4f}  log Z error {each['logz_error']:.4f}"
        else:
            rest = f"correlation(log p, log R) {each['correlation']:.4f}"
        lines.append(f"{format_condition(each['condition'])}: {rest}  mean reward {each['mean_return']:.3f}")
    return lines


def _place(config: GFlowNetConfig, condition: Condition) -> np.ndarray:
    """float32 [P]: where a condition lies on the lattice of its knots."""
    if isinstance(condition, tuple):
        return preferences.place(np.array(condition))
    low, high = config.learner.condition_low, config.learner.condition_high
    return np.array([(condition - low) / (high - low) * (config.knots - 1)], np.float32)


def _hats(place: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """float32 [N]: weights of knots [N, P] from which a place [P] is interpolated."""
    away = place[None] - knots
    return np.maximum(1 - np.maximum(away.max(1), 0) + np.minimum(away.min(1), 0), 0)


def _without_condition(branch: Any, at: np.ndarray) -> Any:
    if not isinstance(branch, Mapping) or "condition" not in branch:
        return branch
    kept = {name: leaf for name, leaf in branch.items() if name != "condition"}
    moved = np.einsum("k,...kw->...w", at, np.asarray(branch["condition"]))
    name = "first" if "first" in branch else "bias"  # a transformer adds it to its first token
    return kept | {name: np.asarray(branch[name]) + moved}
