"""One sampler for a range of conditions, and the plain sampler that it is at one of them.

A condition enters the network as a term of the first layer's bias, as a factor of the forward logits (Kim et al. 2024,
"Learning to scale logits for temperature-conditional GFlowNets"), and in log Z, each interpolated between values
learned at K knots. At a fixed condition these are constants, so `fix` gives parameters of a network without conditions
and settings of a world with the reward under that condition: whatever works for a plain sampler works for them.

Shapes: S seeds, K knots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.core.types import Params
from xladder.errors import UsageError
from xladder.worlds.flow_conditioned import ConditionedSettings

if TYPE_CHECKING:
    from xladder.families.gflownet.config import GFlowNetConfig


def check(config: GFlowNetConfig, condition: float) -> None:
    """Raise a `UsageError` for a condition outside the range that a sampler was trained for."""
    if not config.conditional:
        raise UsageError("This sampler has no condition: train one with `--learner.condition beta`.")
    low, high = config.learner.condition_low, config.learner.condition_high
    if not low <= condition <= high:
        raise UsageError(f"The condition is {condition:g}, but this sampler was trained for {low:g} to {high:g}.")


def fix(config: GFlowNetConfig, params: Params, condition: float) -> tuple[Any, Params]:
    """Settings and parameters, leaves […], of the plain sampler at a condition."""
    check(config, condition)
    low, high = config.learner.condition_low, config.learner.condition_high
    at = _hats((condition - low) / (high - low), config.knots)
    fixed = {name: _without_condition(branch, at) for name, branch in params.items() if name != "logit_scale"}
    if "logit_scale" in params:
        scale = np.exp(np.asarray(params["logit_scale"]) @ at)[..., None]  # […, 1]
        for name in {"forward_head", "stop_head"} & set(params):  # a transformer has its own for stop
            head = params[name]
            kernel, bias = np.asarray(head["kernel"]), np.asarray(head["bias"])
            fixed[name] = {"kernel": kernel * scale[..., None], "bias": bias * scale}
    if "log_z" in params:
        fixed["log_z"] = np.asarray(params["log_z"]) @ at
    world = ConditionedSettings(config.world, float(condition))
    return replace(config, world=world, learner=replace(config.learner, condition="none")), fixed


def label(condition: float) -> str:
    """A condition in the name of a column."""
    return f"beta_{condition:g}"


def describe(score: Mapping[str, Any]) -> list[str]:
    """The evaluations at all conditions, one line each."""
    lines = []
    for each in score["conditions"]:
        if "tv" in each:
            rest = f"total variation {each['tv']:.4f}  log Z error {each['logz_error']:.4f}"
        else:
            rest = f"correlation(log p, log R) {each['correlation']:.4f}"
        lines.append(f"β = {each['condition']:g}: {rest}  mean reward {each['mean_return']:.3f}")
    return lines


def _hats(place: float, knots: int) -> np.ndarray:
    return np.maximum(1 - np.abs(np.float32(place) * (knots - 1) - np.arange(knots, dtype=np.float32)), 0)


def _without_condition(branch: Any, at: np.ndarray) -> Any:
    if not isinstance(branch, Mapping) or "condition" not in branch:
        return branch
    kept = {name: leaf for name, leaf in branch.items() if name != "condition"}
    moved = np.einsum("k,...kw->...w", at, np.asarray(branch["condition"]))
    name = "first" if "first" in branch else "bias"  # a transformer adds it to its first token
    return kept | {name: np.asarray(branch[name]) + moved}
