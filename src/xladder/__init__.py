"""xladder: train the same learner on a ladder of rungs, from PyTorch to one XLA program.

    import xladder

    result = xladder.train("cartpole", rung="fused", seeds=8, steps=100_000, out="runs/cart")
    result                                    # how long it trained and the return it reached
    result.metrics["return"]                  # float [seed, row]: ticks
    result.evaluate(episodes=100)             # greedy policy, next to a random one
    policy = result.policy(seed=0)            # a function from observations to actions

    xladder.resume("runs/cart")               # continue a run that was stopped or killed
    xladder.load("runs/cart")                 # the result in a run directory, written from Python or the command line
    xladder.sweep("cartpole", {"learner.lr": "log:1e-4..1e-2"}, trials=16, seeds=4, out="runs/rates")
    xladder.compare("cartpole", ["torch", "fused"])  # the same experiment on several rungs
    xladder.make("treasurehunt", "pettingzoo")       # a world with the API of PettingZoo, Gymnasium, JaxMARL or gymnax

`xladder.WORKLOADS` and `xladder.RUNGS` list what is available. A world's name also works as a workload's name
(`"atari/pong"`, `"gym/LunarLander-v3"`; `xladder worlds` lists them). Every field of a workload's config is a keyword
of `train`. Every error that a user can fix is an `xladder.XladderError`, and its message says how.

Public names are imported on first use, so `import xladder` loads neither JAX nor PyTorch.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from xladder.apis.making import make
    from xladder.callbacks import Progress
    from xladder.errors import Diverged, Interrupted, UsageError, UserCodeFailed, XladderError
    from xladder.plans import Plan, plan
    from xladder.registry import RUNGS, WORKLOADS
    from xladder.results import Result
    from xladder.runs.compare import compare
    from xladder.runs.loading import evaluate, load
    from xladder.sweeps.api import sweep
    from xladder.training import resume, train

__version__ = "0.2.0"
__all__ = [
    "RUNGS",
    "WORKLOADS",
    "Diverged",
    "Interrupted",
    "Plan",
    "Progress",
    "Result",
    "UsageError",
    "UserCodeFailed",
    "XladderError",
    "compare",
    "evaluate",
    "load",
    "make",
    "plan",
    "resume",
    "sweep",
    "train",
]

_HOMES = {
    "RUNGS": "xladder.registry",
    "WORKLOADS": "xladder.registry",
    "Diverged": "xladder.errors",
    "Interrupted": "xladder.errors",
    "Plan": "xladder.plans",
    "Progress": "xladder.callbacks",
    "Result": "xladder.results",
    "UsageError": "xladder.errors",
    "UserCodeFailed": "xladder.errors",
    "XladderError": "xladder.errors",
    "compare": "xladder.runs.compare",
    "evaluate": "xladder.runs.loading",
    "load": "xladder.runs.loading",
    "make": "xladder.apis.making",
    "plan": "xladder.plans",
    "resume": "xladder.training",
    "sweep": "xladder.sweeps.api",
    "train": "xladder.training",
}
_CALLED = ("compare", "evaluate", "load", "plan", "resume", "sweep", "train")
"""Functions that the command line calls as well: here, their errors name keywords in place of its flags."""
_MODULES = ("bridge", "gym", "hybrid", "parity", "sorrel")
"""Public modules, also imported on first use."""


def __getattr__(name: str) -> _typing.Any:
    if name in _MODULES:
        return _importlib.import_module(f"xladder.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'xladder' has no attribute {name!r}")
    found = getattr(_importlib.import_module(_HOMES[name]), name)
    return _importlib.import_module("xladder.keywords").worded(found) if name in _CALLED else found


def __dir__() -> list[str]:
    return [*__all__, *_MODULES, "__version__"]
