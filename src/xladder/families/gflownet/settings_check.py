"""Checks of a GFlowNet's settings. Each raises a `UsageError` that names the flag, its value and what is allowed."""

from __future__ import annotations

from typing import get_args

from xladder.errors import UsageError, need, uneven
from xladder.families.gflownet import preferences
from xladder.families.gflownet.config import BY_TRANSITIONS, GFlowNetConfig, LossName
from xladder.settings import MOST_EPISODES, MOST_LAYERS, check_counts
from xladder.worlds.flow_settings import MOST_STATES, FlowSettings

MOST_WEIGHT = 1e30  # of a sub-trajectory, before weights are normalised
MOST_TRAJECTORIES = 100_000  # of a batch: each of its steps is compared with each of them
MOST_WIDTH = 2**16  # of a hidden layer


def check(config: GFlowNetConfig) -> None:
    """Raise a `UsageError` that names the field, its value and what is allowed."""
    check_counts(config)
    config.world.check()
    _check_sizes(config)
    _check_network(config)
    _check_optimiser(config)
    _check_loss(config)
    _check_exploration(config)
    _check_condition(config)
    _check_replay(config)
    _check_local_search(config)
    _check_evaluation(config)


def _check_sizes(config: GFlowNetConfig) -> None:
    world, learner = config.world, config.learner
    for flag, count in [
        ("iterations", config.iterations),
        ("eval-samples", config.eval_samples),
        ("learner.batch-size", learner.batch_size),
        ("learner.width", learner.width),
        ("learner.layers", learner.layers),
        ("learner.memory", learner.memory),
    ]:
        need(count >= 1, flag, count, "it has to be 1 or more")
    samples = config.eval_samples
    need(samples <= MOST_EPISODES, "eval-samples", samples, f"it has to be 1 to {MOST_EPISODES:,}")
    for flag, count, size in [
        ("learner.batch-size", learner.batch_size, world.steps * world.state_size),
        ("learner.memory", learner.memory, world.state_size),
    ]:
        need(count * size < 2**31, flag, count, f"with {size} numbers each, {2**31 // size} are possible in this world")
    batch = learner.batch_size
    need(batch <= MOST_TRAJECTORIES, "learner.batch-size", batch, f"it has to be 1 to {MOST_TRAJECTORIES:,}")


def _check_network(config: GFlowNetConfig) -> None:
    learner = config.learner
    need(learner.width <= MOST_WIDTH, "learner.width", learner.width, f"{MOST_WIDTH} is the widest possible")
    need(learner.layers <= MOST_LAYERS, "learner.layers", learner.layers, f"it has to be 1 to {MOST_LAYERS}")
    need(learner.network in ("mlp", "transformer"), "learner.network", learner.network, "there are mlp and transformer")
    if learner.network == "mlp":
        return
    need(learner.attention_heads >= 1, "learner.attention-heads", learner.attention_heads, "it has to be 1 or more")
    need(
        learner.width % learner.attention_heads == 0,
        "learner.width",
        learner.width,
        f"it has to be a multiple of `--learner.attention-heads`, which is {learner.attention_heads}",
    )
    built = config.world.build()
    need(
        built.num_tokens > 0 and built.num_inputs % built.num_tokens == 0,
        "learner.network",
        learner.network,
        "it needs a world whose `encode` gives one whole number for each place, out of equally many",
    )


def _check_optimiser(config: GFlowNetConfig) -> None:
    learner = config.learner
    for flag, rate in [("learner.lr", learner.lr), ("learner.log-z-lr", learner.log_z_lr)]:
        need(0.0 < rate < float("inf"), flag, rate, "it has to be a positive number")
    need(
        0.0 <= learner.weight_decay < float("inf"),
        "learner.weight-decay",
        learner.weight_decay,
        "it has to be a number, and cannot be negative",
    )


def _check_loss(config: GFlowNetConfig) -> None:
    world, learner, losses = config.world, config.learner, get_args(LossName)
    need(config.loss in losses, "loss", config.loss, f"it has to be one of {', '.join(losses)}")
    need(
        config.loss != "vargrad" or learner.batch_size >= 2,
        "learner.batch-size",
        learner.batch_size,
        "VarGrad is a variance over the batch: it needs 2 or more",
    )
    need(
        learner.weighting == "trajectories" or config.loss in BY_TRANSITIONS,
        "learner.weighting",
        learner.weighting,
        f"that is for {', '.join(BY_TRANSITIONS)}: `--loss {config.loss}` has one term per trajectory",
    )
    need(learner.mdb_delta > 0.0, "learner.mdb-delta", learner.mdb_delta, "it has to be positive")
    need(0.0 < learner.subtb_lambda <= 2.0, "learner.subtb-lambda", learner.subtb_lambda, "λ has to lie in (0, 2]")
    need(
        max(learner.subtb_lambda, 1.0) ** min(world.steps, 1000) < MOST_WEIGHT,
        "learner.subtb-lambda",
        learner.subtb_lambda,
        f"with trajectories of up to {world.steps} steps the weight of the longest would overflow: make it smaller",
    )
    if config.loss == "mdb" and not world.all_complete:
        _check_stops(world)
    if config.loss in ("fldb", "flsubtb") and not world.all_complete:
        _check_rewards_on_the_way(config)


def _check_stops(world: FlowSettings) -> None:
    from xladder.families.gflownet.check import find_incomplete

    state = find_incomplete(world.build())
    if state:
        raise UsageError(
            f"`--loss mdb` needs a world in which every state is an object, but {state} is incomplete: use `--loss db`."
        )


def _check_rewards_on_the_way(config: GFlowNetConfig) -> None:
    from xladder.families.gflownet.check import find_unrewarded

    found = find_unrewarded(config.world.build())
    if found:
        raise UsageError(
            f"`--loss {config.loss}` needs a log-reward of incomplete objects, too, but that of {found}: make it "
            f"finite there, or use `--loss {config.loss.removeprefix('fl')}`."
        )


def _check_exploration(config: GFlowNetConfig) -> None:
    learner = config.learner
    for flag, positive in [
        ("learner.temperature", learner.temperature),
        ("learner.temperature-end", learner.temperature_end),
    ]:
        need(0.0 < positive < float("inf"), flag, positive, "it has to be a positive number")
    for flag, fraction in [
        ("learner.epsilon", learner.epsilon),
        ("learner.epsilon-end", learner.epsilon_end),
        ("learner.explore-until", learner.explore_until),
    ]:
        need(0.0 <= fraction <= 1.0, flag, fraction, "it has to lie in [0, 1]")


def _check_condition(config: GFlowNetConfig) -> None:
    learner = config.learner
    if not config.conditional:
        return
    if config.preferential:
        _check_terms(config)
    else:
        low, high = learner.condition_low, learner.condition_high
        need(0.0 < low < float("inf"), "learner.condition-low", low, "an exponent has to be a positive number")
        need(low < high < float("inf"), "learner.condition-high", high, f"it has to be larger than the lowest, {low}")
    need(
        learner.conditioning != "logits" or not config.learns_flow,
        "learner.conditioning",
        learner.conditioning,
        f"the flows of `--loss {config.loss}` depend on the condition, too: use `both` or `input`",
    )


def _check_terms(config: GFlowNetConfig) -> None:
    terms = config.world.num_terms
    need(
        2 <= terms <= preferences.MOST_TERMS,
        "learner.condition",
        config.learner.condition,
        f"that needs 2 to {preferences.MOST_TERMS} reward terms, and this world has {terms or 'one reward'}: use "
        "`hypergrid --world.reward easy+corners`, or a world of your own with `num_terms` and `log_terms`",
    )


def _check_replay(config: GFlowNetConfig) -> None:
    learner, share = config.learner, config.learner.replay_share
    need(0.0 <= share < 1.0, "learner.replay-share", share, "it has to lie in [0, 1): some objects must be new")
    need(
        learner.replay == "none" or config.remembered > 0,
        "learner.replay-share",
        share,
        f"in a batch of {learner.batch_size} that leaves no room for replayed objects: "
        "make it or `--learner.batch-size` larger, or add `--learner.replay none`",
    )


def _check_local_search(config: GFlowNetConfig) -> None:
    learner, most = config.learner, config.world.steps
    undone, share = learner.local_search_steps, learner.local_search_share
    need(learner.local_search >= 0, "learner.local-search", learner.local_search, "it cannot be negative")
    need(undone >= 0, "learner.local-search-steps", undone, "it cannot be negative")
    need(undone < most, "learner.local-search-steps", undone, f"trajectories have at most {most} steps")
    need(0.0 < share <= 1.0, "learner.local-search-share", share, "it has to lie in (0, 1]")


def _check_evaluation(config: GFlowNetConfig) -> None:
    need(config.evaluate_every >= 0, "evaluate-every", config.evaluate_every, "it cannot be negative")
    if config.evaluation == "exact" and not config.world.enumerable:
        raise UsageError(
            f"`--evaluation exact` needs every state, and there are {config.world.size_in_words()}: {MOST_STATES:,} "
            "are possible. Use `--evaluation sampled`."
        )


def for_mesh(config: GFlowNetConfig, devices: int) -> GFlowNetConfig:
    """Settings whose trajectories divide over `devices`; a `UsageError` if that is not possible."""
    if config.loss == "vargrad":
        raise UsageError(
            "`--loss vargrad` compares all trajectories of a batch, so data cannot be sharded: shard seeds over the "
            "devices instead."
        )
    new = config.learner.batch_size - config.remembered
    if new % devices or config.remembered % devices:
        if config.remembered:
            raise UsageError(
                f"A batch has {new} new and {config.remembered} replayed objects, and {devices} devices cannot share "
                f"both evenly: use `--learner.replay-share 0.5` and a `--learner.batch-size` of {2 * devices} or more."
            )
        raise uneven("learner.batch-size", config.learner.batch_size, devices)
    return config
