"""Command lines and configs that are wrong in some way: every one has to be refused with a sentence."""

import json
import random
import string
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from xladder.plans import plan
from xladder.registry import WORKLOADS
from xladder.runs.plan_files import describe_plan

WORKLOAD_NAMES = ("treasurehunt", "hypergrid", "cartpole", "minatar/breakout", "atari/pong", "acrobot")
NUMBERS = {
    "treasurehunt": ("--epochs", "--seed", "--seeds", "--learner.batch-size", "--world.num-agents", "--learner.lr"),
    "hypergrid": ("--iterations", "--seed", "--learner.batch-size", "--world.dim", "--learner.lr"),
    "cartpole": ("--steps", "--seeds", "--learner.memory", "--world.num-envs", "--learner.n-step"),
    "minatar/breakout": ("--steps", "--learner.batch-size", "--learner.lr"),
    "atari/pong": ("--frames", "--world.num-envs", "--learner.batch-size"),
    "acrobot": ("--steps", "--learner.gamma"),
}
NONSENSE = ("abc", "", "1.5.2", "--", "1e", "None", "[1]", "{}", "٣x", "0x10", "1;ls", "$(id)", "nan nan", "\x1b[31m7")
NEGATIVE = ("-1", "-999999999999", "-0.5")
RUNGS = ("torch", "hybrid", "sequential", "parallel", "fused")


class Case(NamedTuple):
    """A command line, and the word that its refusal has to offer, if there is one."""

    words: list[str]
    suggestion: str | None = None


def typo(rng: random.Random, word: str) -> str:
    """One letter too many, too few, another, or two the other way round."""
    place = rng.randrange(1, len(word) - 1)
    letter = rng.choice(string.ascii_lowercase)
    changed = rng.choice(
        [
            word[:place] + word[place + 1 :],
            word[:place] + letter + word[place:],
            word[:place] + letter + word[place + 1 :],
            word[:place] + word[place + 1] + word[place] + word[place + 2 :],
        ]
    )
    return changed if changed != word else word + letter


def config_text(rng: random.Random, workload: str) -> str:
    """The config.json of a run with something wrong in it."""
    data = describe_plan(plan(workload))
    kind = rng.choice(["cut", "drop", "type", "deep", "name", "extra"])
    if kind == "cut":
        return json.dumps(data)[: rng.randrange(5, 60)]
    if kind == "drop":
        del data[rng.choice(["workload", "rung", "seed", "seeds", "config"])]
    elif kind == "type":
        data[rng.choice(["workload", "rung", "seed", "seeds", "config"])] = rng.choice([None, [], {"a": 1}, 1.5, True])
        if isinstance(data["seed"], bool) or isinstance(data["seeds"], bool):
            data["workload"] = 3
        if data.get("config") == {"a": 1}:
            pass
    elif kind == "deep":
        section = rng.choice([name for name, value in data["config"].items() if isinstance(value, dict)])
        field = rng.choice([name for name, value in data["config"][section].items() if type(value) in (int, float)])
        data["config"][section][field] = rng.choice(["many", [], {}, None, "inf inf"])
    elif kind == "name":
        data["config"][typo(rng, "learner")] = {}
    else:
        data["config"]["_target_"] = "os.system"
    return json.dumps(data)


def cases(rng: random.Random, count: int, folder: Path) -> Iterator[Case]:
    """So many of them; files that they name are put into a folder."""
    for number in range(count):
        workload = rng.choice(WORKLOAD_NAMES)
        kind = rng.choice(["workload", "command", "flag", "number", "negative", "rung", "preset", "config", "path"])
        command = rng.choice(["train", "train", "compare"])
        if kind == "workload":
            known = rng.choice([*WORKLOADS, "cartpole", "acrobot"])
            wrong = typo(rng, known)
            yield Case([command, wrong], None if wrong in WORKLOAD_NAMES else known)
        elif kind == "command":
            known = rng.choice(["train", "compare", "parity", "resume", "worlds", "doctor"])
            yield Case([typo(rng, known), workload], known)
        elif kind == "flag":
            flag = rng.choice(NUMBERS[workload])
            yield Case([command, workload, "--" + typo(rng, flag[2:]) + "x", "3"])
        elif kind == "number":
            yield Case([command, workload, rng.choice(NUMBERS[workload]), rng.choice(NONSENSE)])
        elif kind == "negative":
            flag = rng.choice([flag for flag in NUMBERS[workload] if flag != "--learner.lr"])
            yield Case([command, workload, flag, rng.choice(NEGATIVE)])
        elif kind == "rung":
            known = rng.choice(RUNGS)
            words = ["train", workload, "--rung", typo(rng, known)]
            yield Case(words, known)
        elif kind == "preset":
            yield Case([command, workload, "--preset", "".join(rng.choices(string.ascii_lowercase, k=9))])
        elif kind == "config":
            file = folder / f"config-{number}.json"
            file.write_text(config_text(rng, workload))
            yield Case(["train", workload, "--config", str(file)])
        else:
            missing = str(folder / "nowhere" / str(number))
            yield Case(rng.choice([["eval", missing], ["resume", missing], ["train", workload, "--config", missing]]))
