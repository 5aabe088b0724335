"""Fill the tables of docs/algorithms and docs/worlds, between marks, from the registries and from committed results.

    python benchmarks/pages.py            writes every page anew

    <!-- generated: settings iqn -->      settings of an algorithm: their values in presets, and what they are
    <!-- generated: world hypergrid -->   every setting of a world
    <!-- generated: presets tag -->       presets of a workload, and what they change
    <!-- generated: returns iqn dqn -->   what value presets reached on Catch and CartPole
    <!-- generated: rows memory -->       what the rows of a piece of `algorithm_curves.py` reached
    <!-- generated: distances tb db -->   what GFlowNet losses reached on the small hypergrid
    <!-- generated: gymnax minatar/ -->   worlds of gymnax, by the beginning of their names, or by name
    <!-- generated: picture iqn TEXT -->  a picture of `curve_pictures.py`, if what it shows was measured
    <!-- end -->

A test compares the pages with what this would write.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import curve_pictures

from xladder.cli.help_page import docstrings
from xladder.families.value import presets as value_presets
from xladder.plans import plan
from xladder.settings import as_text, flat
from xladder.worlds import names

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
PAGES = [page for folder in ("algorithms", "worlds") for page in sorted((DOCS / folder).glob("*.md"))]
REGION = re.compile(r"(<!-- generated: (\w+) ?(.*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

SHARED = ("lr", "batch_size", "steps_per_update", "target_update_period", "tau", "gamma")
# The settings that make each algorithm what it is; presets have the others.
VALUE = {
    "dqn": ("loss", "kappa", "clip", *SHARED, "memory", "learning_starts", "epsilon_end", "epsilon_share"),
    "double": ("double", "n_step"),
    "dueling": ("dueling", "streams", "double"),
    "c51": ("head", "atoms", "v_min", "v_max"),
    "qrdqn": ("head", "quantiles", "kappa"),
    "iqn": ("head", "quantiles", "act_quantiles", "cosines", "kappa"),
    "munchausen": ("munchausen", "munchausen_scale", "munchausen_floor", "temperature"),
    "rainbow": ("head", "double", "dueling", "noisy", "sigma", "n_step", "prioritised", "alpha", "beta", "epsilon"),
    "r2d2": ("recurrent", "burn_in", "sequence", "eta", "n_step", "prioritised", "alpha", "beta", "gamma"),
    "replay": ("n_step", "prioritised", "alpha", "beta", "beta_end", "memory", "batch_size"),
    "exploration": ("epsilon", "epsilon_end", "epsilon_share", "epsilon_steps", "explore_from", "noisy", "sigma"),
    "explore": ("explore_repeat",),
    "pqn": ("lr", "optimiser", "clip", "epsilon_end", "epsilon_share"),
}
SHOWN_AS = {"replay": "rainbow", "exploration": "default"}  # the preset whose values are shown, if of another name
FLOW = {
    "gflownet": ("batch_size", "lr", "network", "width", "layers", "trunk", "backward"),
    "tb": ("log_z_lr", "backward"),
    "db": ("weighting", "trunk"),
    "subtb": ("subtb_lambda",),
    "mdb": ("mdb_delta", "weighting"),
    "local-search": ("local_search", "local_search_steps", "local_search_rule", "local_search_share"),
    "flow-exploration": ("epsilon", "epsilon_end", "temperature", "temperature_end", "explore_until"),
    "flow-replay": ("replay", "replay_share", "memory"),
    "conditional": ("condition", "condition_low", "condition_high", "scalarisation", "conditioning"),
}


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown; an upright bar inside a cell would end it."""
    lines = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def flag(group: str, name: str) -> str:
    """A setting as it is typed."""
    inner = name.rstrip("_")  # an underscore at the end stays
    return f"`--{group}.{inner.replace('_', '-')}{name[len(inner) :]}`"


def settings(name: str) -> str:
    """The settings of an algorithm."""
    if name in FLOW:
        learner = plan("hypergrid").config.learner
        return explained("learner", [learner], ["default"], FLOW[name])
    if name == "sorrel":
        return explained("learner", [plan("treasurehunt").config.learner], ["default"])
    preset = SHOWN_AS.get(name, name)
    worlds = {"vectors": "cartpole", "small images": "minatar/breakout"}
    found = {head: value_presets.presets(world) for head, world in worlds.items()}
    configs = {head: presets[preset] for head, presets in found.items() if preset in presets}
    lines = explained("learner", [c.learner for c in configs.values()], list(configs), VALUE[name])
    if name == "pqn":
        for group, fields in {"pqn": (), "world": ("num_envs",)}.items():
            more = explained(group, [getattr(c, group) for c in configs.values()], list(configs), fields)
            lines += "".join(more.splitlines(keepends=True)[2:])  # without the head
    return lines


def explained(group: str, trees: list[Any], heads: list[str], fields: tuple[str, ...] = ()) -> str:
    """Settings with their values in several presets, and what their docstrings say."""
    texts = docstrings(type(trees[0]))
    shown = fields or [name for name in flat(trees[0]) if name != "name"]
    rows = [[flag(group, f), *(text_of(getattr(tree, f)) for tree in trees), texts.get(f, "")] for f in shown]
    return table(["setting", *heads, "what it is"], rows)


def text_of(value: Any) -> str:
    """A value as it is shown."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "–" if value in ("", ()) else as_text(value)


def world(name: str) -> str:
    """All settings of a world."""
    return explained("world", [plan(name).config.world], ["default"])


def presets(name: str) -> str:
    """The presets of a workload."""
    found = plan(name).workload.family.presets(name, None)
    before = flat(found["default"])
    rows = []
    for preset, config in found.items():
        changes = [f"`{key}` {text_of(value)}" for key, value in flat(config).items() if before.get(key) != value]
        rows.append(
            [
                f"`{preset}`",
                ", ".join(changes) or ("nothing; used without `--preset`" if preset == "default" else "nothing"),
            ]
        )
    return table(["preset", "what differs from `default`"], rows)


def result(piece: str) -> dict[str, Any]:
    """A file of `algorithm_curves.py`."""
    file = HERE / "results" / f"curves-{piece}-cpu.json"
    return json.loads(file.read_text()) if file.exists() else {"rows": []}


def signed(value: float, digits: int) -> str:
    """A number with a minus sign instead of a hyphen."""
    return f"{value:.{digits}f}".replace("-", "−")


def score(row: dict[str, Any]) -> list[str]:
    """What a row reached: mean with interval, the worst seed, and what is compared with."""
    end, returns = row["end"], row["measure"] == "return"
    digits = 4 if not returns else 2 if abs(end["mean"]) < 10 else 1
    worst = min(end["per_seed"]) if returns else max(end["per_seed"])
    known = signed(row["random"], digits) if returns else signed(row["logz_error"]["mean"], 4)
    return [f"{signed(end['mean'], digits)} ± {end['ci95']:.{digits}f}", signed(worst, digits), known]


def source(*pieces: str) -> str:
    """How the numbers were made."""
    devices = dict.fromkeys(result(piece)["device"] for piece in pieces)
    files = ", ".join(f"[{p}](../../benchmarks/results/curves-{p}-cpu.json)" for p in pieces)
    return f"\n`python benchmarks/algorithm_curves.py {' '.join(pieces)}` on {', '.join(devices)}; figures: {files}.\n"


def commands(rows: list[dict[str, Any]]) -> str:
    """The command lines of the rows."""
    if not rows:
        return ""
    lines = "".join(f"$ {row['command']}\n" for row in rows)
    seconds = sum(row["seconds"] for row in rows)
    minutes = max(1, round(seconds / 60))
    long = f"{minutes} minutes" if minutes > 1 else "a minute"
    takes = f"This command takes {long}" if len(rows) == 1 else f"Together, these commands take {long}"
    return f"\n{takes} on two busy cores:\n\n<!-- test: short takes {long} -->\n```console\n{lines}```\n"


def find(piece: str, wanted: list[str]) -> list[dict[str, Any]]:
    """The rows of these names, in this order, as far as they were measured."""
    found = {row["name"]: row for row in result(piece)["rows"]}
    return [found[name] for name in wanted if name in found]


def shown(heads: list[str], lines: list[list[str]], run: list[dict[str, Any]], *pieces: str) -> str:
    """A table of measurements, the command lines of some, and where the numbers are from."""
    return table(heads, lines) + commands(run) + source(*pieces) if lines else "Not measured yet.\n"


def lacking(wanted: list[str], found: list[dict[str, Any]]) -> str:
    """Which of those wanted were not measured, if others were."""
    missing = [f"`{name}`" for name in wanted if name not in [row["name"] for row in found]]
    return f"\nNot measured yet: {', '.join(missing)}.\n" if found and missing else ""


def returns(wanted: str) -> str:
    """Value presets on Catch and CartPole."""
    names = wanted.split()
    pieces = [piece for piece in ("catch", "cartpole") if find(piece, names[:1])]  # not those beside it alone
    found = [(piece, row) for piece in pieces for row in find(piece, names)]
    rows = [[piece, f"`{row['name']}`", f"{row['length']:,}", *score(row)] for piece, row in found]
    heads = ["world", "preset", "steps", "return, greedy", "worst of 8 seeds", "random play"]
    first = [row for _, row in found if row["name"] == names[0]]
    return shown(heads, rows, first, *pieces) + lacking(names, [row for _, row in found])


def distances(wanted: str) -> str:
    """GFlowNet losses on the small hypergrid."""
    names = wanted.split()
    found = find("hypergrid", names) if find("hypergrid", names[:1]) else []
    rows = [[f"`{row['name']}`", f"{row['length']:,}", *score(row)] for row in found]
    heads = ["loss", "iterations", "total variation, exact", "worst of 8 seeds", "error of log Z"]
    return shown(heads, rows, found[:1], "hypergrid") + lacking(names, found)


def rows(words: str) -> str:
    """All rows of a piece, or those that are named after it, with commas."""
    piece, _, named = words.partition(" ")
    wanted = [name.strip() for name in named.split(",") if name.strip()]
    chosen = find(piece, wanted or [row["name"] for row in result(piece)["rows"]])
    if not chosen:
        return shown([], [], [])
    flows = chosen[0]["measure"] != "return"
    last = (
        ["total variation", "worst seed", "error of log Z"]
        if flows
        else ["return, greedy", "worst seed", "random play"]
    )
    lines = [[row["name"], str(row["seeds"]), f"{row['length']:,}", *score(row)] for row in chosen]
    heads = ["run", "seeds", chosen[0]["unit"], *last]
    return shown(heads, lines, chosen, piece)


def gymnax(wanted: str) -> str:
    """Worlds of gymnax."""
    chosen = [w for w in names.GYMNAX.values() if any(w.name.startswith(word) for word in wanted.split())]
    rows = [[f"`{w.name}`", " × ".join(map(str, w.shape)), str(w.actions), w.summary, f"`{w.id}`"] for w in chosen]
    return table(["world", "observation", "actions", "task", "gymnax's id"], rows)


def picture(words: str) -> str:
    """A picture, with the text for those who do not see it."""
    name, _, text = words.partition(" ")
    return f"![{text}](../images/curves/{name}.png)\n" if curve_pictures.panels(name) else ""


KINDS: dict[str, Callable[[str], str]] = {
    f.__name__: f for f in (settings, world, presets, returns, distances, rows, gymnax, picture)
}


def filled(text: str) -> str:
    """A page with its regions filled."""
    return REGION.sub(lambda m: f"{m[1]}{KINDS[m[2]](m[3])}{m[5]}", text)


def main() -> None:
    for page in PAGES:
        page.write_text(filled(page.read_text()))


if __name__ == "__main__":
    main()
