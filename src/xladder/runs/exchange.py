"""Export the trained networks of a run to a file for PyTorch, and import such a file as a run directory.

A single network is stored under its plain names; several are distinguished by a prefix, `seed0.agent0.`, on every
name. Before the file gets its final name it is read back and, if PyTorch is installed, loaded into its network there.
So every exported file has been checked against the run.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from xladder import devices, parameters
from xladder.core.packages import is_installed
from xladder.core.state import Arrays, flatten
from xladder.core.types import Params
from xladder.errors import Mismatch, UsageError
from xladder.parameters import some
from xladder.plans import Plan
from xladder.results import Result
from xladder.runs import nets, state_files
from xladder.runs.directory import RunDirectory
from xladder.runs.nets import Place, format_numbers
from xladder.runs.start_files import save_start

if TYPE_CHECKING:
    from xladder.parity.levels import Level

_PREFIX = re.compile(r"seed(0|[1-9]\d{0,9})\.agent(0|[1-9]\d{0,5})\.")


class Exported(NamedTuple):
    """What was exported, and how it compares with PyTorch."""

    places: list[Place]
    parameters: int
    """Number of parameters in all networks together."""
    level: Level | None
    """The difference between Flax and PyTorch on random inputs; None if PyTorch is not installed."""


class Imported(NamedTuple):
    """The networks of an imported file."""

    nets: dict[Place, Params]
    shared: bool
    """Whether a single network is used for several agents."""
    states: Arrays
    """The rest of the agents' state, if the files have it: [seed, agent, …] by its names in a checkpoint."""


def export(result: Result, form: str, out: Path, seed: int | None = None, agent: int | None = None) -> Exported:
    """Write networks of a run to a new file.

    Args:
        result: The run.
        form: The format, `torch` or `safetensors`.
        out: The file; it must not exist.
        seed: Write only the networks of this seed.
        agent: Write only the networks of this agent.
    """
    plan = result.plan
    layers = plan.workload.family.layer_names
    nets.check_twin(plan)
    if out.exists() or out.is_symlink():
        raise UsageError(f"`{out}` exists: choose another `--out`, nothing is overwritten.")
    by_suffix = state_files.SUFFIXES.get(out.suffix.lower(), form)
    if by_suffix != form:
        raise UsageError(f"`{out.name}` is a file name for `--to {by_suffix}`, not for `--to {form}`.")
    chosen = {place: nets.take(result, place) for place in nets.places(result, seed, agent)}
    torso = plan.workload.family.torso_names(plan.config)
    named = {
        place: parameters.with_noise(layers, parameters.to_state(layers, params, torso))
        for place, params in chosen.items()
    }
    state = {
        (name if len(named) == 1 else f"seed{place[0]}.agent{place[1]}.{name}"): values
        for place, net in named.items()
        for name, values in net.items()
    }
    # The draft keeps the suffix, because the format is read from it.
    draft = out.with_name(f".{os.getpid()}-{out.name}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        state_files.write(draft, form, state)
        level = _check_written(plan, draft, chosen)
        os.replace(draft, out)
    except OSError as error:
        raise UsageError(f"`{out}` cannot be written: {error.strerror or error}.") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    return Exported(list(chosen), sum(leaf.size for leaf in jax.tree.leaves(chosen)), level)


def read(file: Path, plan: Plan) -> dict[Place | None, Params]:
    """Read the networks in a file and check them against the plan's config; a single one has the key None."""
    layers = plan.workload.family.layer_names
    torso = plan.workload.family.torso_names(plan.config)
    expected = parameters.state_shapes(layers, nets.shapes(plan), torso)
    declared: dict[Place | None, state_files.Declared] = defaultdict(dict)
    prefixes: dict[Place | None, str] = {}
    for name, entry in state_files.declared(file).items():
        found = _PREFIX.match(name)
        place = (int(found[1]), int(found[2])) if found else None
        prefixes[place] = found[0] if found else ""
        if not parameters.is_noise(name):
            declared[place][name.removeprefix(prefixes[place])] = entry
    for place, entries in declared.items():
        _check_declared(file, plan, entries, expected, prefixes[place])
    if not declared:
        raise UsageError(f"`{file}` holds no parameters.")
    values = state_files.read(file, [prefixes[place] + name for place in declared for name in expected])
    for name, array in values.items():
        if not np.isfinite(array).all():
            raise UsageError(f"`{file}` holds nan or infinity in {name!r}.")
    return {
        place: parameters.to_tree(layers, {name: values[prefixes[place] + name] for name in expected}, torso)
        for place in declared
    }


def arrange(file: Path, plan: Plan, found: Mapping[Place | None, Params]) -> Imported:
    """Assign the networks of a file to seeds and agents, for all agents of the plan."""
    config = nets.acting(plan)
    agents = config.num_learners if config.agent_axis else 1
    first = plan.seeds[0]
    placed = {place or (first, 0): net for place, net in found.items()}
    if None in found and len(found) > 1:
        raise UsageError(f"`{file}` mixes names with the prefix `seed0.agent0.` and names without one.")
    seeds = sorted({seed for seed, _ in placed})
    if seeds[-1] >= 2**31 or seeds != list(range(seeds[0], seeds[0] + len(seeds))):
        raise UsageError(f"`{file}` holds seeds with gaps between them: export them one by one.")
    by_seed = {seed: sorted(agent for s, agent in placed if s == seed) for seed in seeds}
    if all(len(numbers) == 1 for numbers in by_seed.values()):
        every = {(seed, a): placed[seed, by_seed[seed][0]] for seed in seeds for a in range(agents)}
        return Imported(every, shared=agents > 1, states={})
    for seed, numbers in by_seed.items():
        if numbers != list(range(agents)):
            raise UsageError(
                f"`{file}` holds agents {format_numbers(numbers)} of seed {seed}, but with these settings "
                f"there are {agents}."
            )
    return Imported(dict(placed), shared=False, states={})


def read_files(files: Sequence[Path], plan: Plan) -> Imported:
    """Read the networks of one file, or of several that hold one agent each, and check them against the plan.

    Files of sorrel's hold whole agents, with target networks and the optimiser's state.
    """
    from xladder.runs import sorrel_agents

    config = nets.acting(plan)
    agents = config.num_learners if config.agent_axis else 1
    if len(files) not in (1, agents):
        raise UsageError(
            f"There are {len(files)} files, but with these settings there are {agents} agents: give one each."
        )
    whole = [sorrel_agents.is_agent_file(file, plan) for file in files]
    if all(whole):
        found, states = sorrel_agents.read_agents(list(files) * (agents if len(files) == 1 else 1), plan)
        placed = {(plan.seeds[0], agent): net for agent, net in found.items()}
        return Imported(placed, len(files) < agents, {name: array[None] for name, array in states.items()})
    if len(files) == 1:
        return arrange(files[0], plan, read(files[0], plan))
    each = [read(file, plan) for file in files]
    for file, networks in zip(files, each, strict=True):
        if len(networks) > 1:
            raise UsageError(f"`{file}` holds {len(networks)} networks: give files of one agent each, or one file.")
    return Imported({(plan.seeds[0], i): next(iter(networks.values())) for i, networks in enumerate(each)}, False, {})


def write_run(out: Path, plan: Plan, imported: Imported, files: Sequence[Path]) -> Path:
    """Write a run directory with imported networks and no training."""
    directory = RunDirectory.create(out, plan)
    try:
        note = f"imported from {', '.join(map(str, files))}"
        directory.log(note)
        directory.write_environment(devices.find(plan.device), note)
        params = nets.put_together(plan, imported.nets)
        directory.save_agents(params)
        if imported.states:
            save_start(directory, params, imported.states)
    except OSError as error:
        directory.discard()
        raise UsageError(f"`{out}` cannot be written: {error.strerror or error}.") from None
    except BaseException:
        directory.discard()
        raise
    directory.lock.release()
    return directory.path


def _check_declared(
    file: Path, plan: Plan, entries: state_files.Declared, expected: Mapping[str, tuple[int, ...]], prefix: str
) -> None:
    """Raise a `UsageError` unless a file declares exactly the parameters of one network."""
    where = f"`{file}`" + (f" ({prefix[:-1]})" if prefix else "")
    missing, extra = expected.keys() - entries.keys(), entries.keys() - expected.keys()
    if missing or extra:
        raise UsageError(
            f"{where} is not a network of `{plan.workload.name}` with these settings: missing {some(missing)}, "
            f"unexpected {some(extra)}."
        )
    for name, (dtype, shape) in entries.items():
        if shape != expected[name]:
            raise UsageError(
                f"{where} has {name!r} with shape {list(shape)}, but these settings need {list(expected[name])}: "
                "give the settings it was trained with."
            )
        if dtype != "float32":
            raise UsageError(f"{where} has {name!r} as {dtype[:20]!r}, but it has to be float32.")


def _check_written(plan: Plan, draft: Path, chosen: Mapping[Place, Params]) -> Level | None:
    """Read a file back and compare it with the run, bit for bit and by PyTorch's outputs."""
    found = read(draft, plan)
    returned: dict[Place, Params] = {place: found[place if len(chosen) > 1 else None] for place in chosen}
    for place, params in chosen.items():
        if not _same(params, returned[place]):
            raise Mismatch(f"The file differs from the run when read back, for seed {place[0]}, agent {place[1]}.")
    if not is_installed("torch"):
        return None
    family = plan.config.family
    forward, layers, torso = family.parity_forward, family.layer_names, family.torso_names(plan.config)
    worst = None
    for place, params in chosen.items():
        state = parameters.to_state(layers, returned[place], torso)
        level = forward(plan.config, params, state)
        if not level.passed:
            raise Mismatch(
                f"PyTorch and Flax disagree for seed {place[0]}, agent {place[1]}: their outputs differ by "
                f"{level.max_abs_diff:.1e}, and {level.tolerance:.1e} is allowed. Nothing was written."
            )
        if worst is None or level.max_abs_diff * worst.tolerance > worst.max_abs_diff * level.tolerance:
            worst = level
    return worst


def _same(ours: Params, theirs: Params) -> bool:
    """Whether two pytrees hold the same bits."""
    a, b = flatten(ours), flatten(theirs)
    return [name for name, _ in a] == [name for name, _ in b] and all(
        x.shape == y.shape and x.tobytes() == y.tobytes() for (_, x), (_, y) in zip(a, b, strict=True)
    )
