"""The updates of several models in one go.

sorrel's loop ends an epoch for every agent and then calls `train_step` of one after the other. Each update depends only
on its own agent, so the first call computes those of all models that have ended their epoch since their last update
and have the same sizes and device. The others' results are kept until their own `train_step`, which hands them out.
Until then they are not in effect. If such a model acts, stores an experience, begins an epoch or loads a file first,
its result is dropped, and `train_step` computes a new one. So nothing depends on whether updates are computed together.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from xladder.sorrel.learning import Done, run_tasks

if TYPE_CHECKING:
    from xladder.sorrel.models import JaxModel

_WAITING: WeakValueDictionary[int, JaxModel] = WeakValueDictionary()  # those that have ended their epoch, in that order


class Pending(NamedTuple):
    """An update that was computed with those of others, and is not in effect yet."""

    done: Done
    memory: tuple[int, int, int]
    """The memory that it was computed from; if that has changed, it came too early."""


@dataclass
class Joint:
    """What a model has to do with others."""

    pending: Pending | None = None
    useful: bool = True
    """False if its last update with others was dropped: agents that do not learn need none."""
    thread: int = 0
    """Where it has ended its epoch; models of other threads are left alone."""


def wait(model: JaxModel) -> None:
    """A model has ended its epoch: its next update may be computed together with those of others."""
    model.joint.thread = threading.get_ident()
    _WAITING[id(model)] = model


def leave(model: JaxModel) -> None:
    """A model goes on: drop what was computed for it."""
    _WAITING.pop(id(model), None)
    if model.joint.pending is not None:
        model.joint.pending, model.joint.useful = None, False


def train(model: JaxModel) -> Any:
    """float32 []: one update of a model, with those of others that are ready for theirs; the model's loss."""
    joint = model.joint
    pending, joint.pending = joint.pending, None
    ended = _WAITING.pop(id(model), None) is not None
    if pending is not None and pending.memory == _memory(model):
        done = pending.done
    elif model.can_train():
        done = train_with(model, _ready(model) if ended else [])
    else:
        return np.float32(0)
    joint.useful = True
    model.finish(done.learned)
    return done.loss


def train_with(model: JaxModel, others: Sequence[JaxModel]) -> Done:
    """Compute the updates of several models; those of the others are kept until they ask for them."""
    tasks = [each.next_task() for each in (model, *others)]
    done, *rest = run_tasks(model.network, model.jax_device, tasks)
    for other, result in zip(others, rest, strict=True):
        _WAITING.pop(id(other), None)
        other.joint.pending = Pending(result, _memory(other))
    return done


def _ready(model: JaxModel) -> list[JaxModel]:
    """The other models whose updates can be computed with this one's."""
    network, thread = model.network, threading.get_ident()
    return [
        other
        for other in list(_WAITING.values())
        if other.joint.useful
        and other.joint.thread == thread
        and other.jax_device == model.jax_device
        and other.network == network
        and other.can_train()
    ]


def _memory(model: JaxModel) -> tuple[int, int, int]:
    return id(model.memory), int(model.memory.idx), int(model.memory.size)
