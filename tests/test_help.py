"""The help of commands with a workload: its settings first, no flag missing, no line too long."""

import contextlib
import io
import re

import pytest

from xladder.cli import command_line, help_page
from xladder.cli.main import COMMANDS, main
from xladder.registry import SOURCES, WORKLOADS, find_workload


def helped(*words: str) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        main(list(words))
    return text.getvalue()


def flags(text: str) -> set[str]:
    """The flags at the beginnings of lines, or of lines in a box, without `--no-…` and those of the help itself."""
    found = re.findall(r"(?:^|[│|] |  )(--[a-z][\w.-]*)", text, re.MULTILINE)
    return {flag for flag in found if not re.search(r"(--|\.)no-", flag)} - {"--help"}


CODE = {"--import", "--changed-code"}  # taken before a command sees its words


@pytest.mark.parametrize(
    "line",
    [
        "train cartpole",
        "train treasurehunt",
        "train hypergrid",
        "train atari/pong",
        "train cartpole --preset pqn",
        "compare tag",
    ],
)
def test_the_whole_help_has_every_flag(line, monkeypatch):
    monkeypatch.setenv("COLUMNS", "10000")
    mine = flags(helped(*line.split(), "--help-all"))
    monkeypatch.setattr("xladder.cli.help_page.ASKED", set())
    monkeypatch.setattr(command_line, "_check_given_once", lambda *_: None)
    tyros = flags(helped(*line.split(), "--help"))
    assert len(tyros) > 10
    if "pqn" not in line:
        tyros = {flag for flag in tyros if not flag.startswith("--pqn.")}
    published = {"--protocol"} if line.startswith("train cartpole") else set()  # taken before tyro sees the words
    assert mine == tyros | CODE | published


@pytest.mark.parametrize("columns", [80, 200])
def test_settings_come_first_and_lines_fit(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = helped("train", "cartpole", "--help")
    assert text.index("--steps") < text.index("--world.num-envs") < text.index("--learner.lr") < text.index("--rung")
    assert "--coordinator" not in text and "--help-all" in text
    assert "None" not in text and "STR" not in text
    assert max(map(len, text.splitlines())) <= columns
    assert re.search(r"rainbow +Rainbow: .*Hessel", text)
    assert "Double Q-learning" in text and "(on;" in " ".join(text.split())


@pytest.mark.parametrize("command", ["train", "sweep", "compare", "inspect", "parity"])
def test_without_a_workload_the_help_says_which_there_are(command):
    text = helped(command, "--help")
    assert text.startswith(f"usage: xladder {command} NAME") and f"`xladder {command} NAME --help`" in text
    assert all(f"  {name} " in text for name in WORKLOADS)


@pytest.mark.parametrize(
    ("line", "protocols"),
    [
        ("train cartpole", "cleanrl|purejaxql"),
        ("sweep minatar/breakout", "minatar|purejaxql"),
        ("train acrobot", None),
        ("train hypergrid", None),
    ],
)
def test_protocols_are_listed_where_a_world_has_any(line, protocols):
    text = helped(*line.split(), "--help")
    assert (f"--protocol {protocols}" in text) if protocols else ("--protocol" not in text)


def test_the_protocol_whose_settings_are_shown_is_named():
    text = " ".join(helped("train", "cartpole", "--protocol", "purejaxql", "--help").split())
    assert "`xladder presets` has their sources. (purejaxql)" in text


@pytest.mark.parametrize(
    ("line", "has", "lacks"),
    [
        ("train hypergrid", "mesh or hosts.", "actors"),
        ("train cartpole", "fused (the default), mesh, hosts or actors.", "see `xladder rungs`"),
        ("inspect cartpole", "parallel or fused (the default).", "mesh"),
        ("train gym/CartPole-v1", "parallel (the default), mesh, hosts or actors.", "fused"),
    ],
)
def test_the_rungs_are_those_of_the_workload(line, has, lacks):
    _, _, after = " ".join(helped(*line.split(), "--help").split()).partition("--rung TEXT ")
    text = after.partition(" --")[0]
    assert has in text and lacks not in text


@pytest.mark.parametrize(
    "line",
    ["train", "sweep", "compare", "inspect", "parity", "train cartpole", "train treasurehunt", "import", "launch"],
)
def test_what_a_command_does_begins_with_a_capital_letter(line):
    assert helped(*line.split(), "--help").splitlines()[2][0].isupper()


def test_launch_names_the_command_that_follows():
    text = helped("launch", "--help")
    assert text.startswith("usage: xladder launch [OPTIONS] train|resume …") and "  train|resume … " in text


def test_import_has_settings_only_of_a_workload_that_is_named():
    text = helped("import", "--help")
    assert "  --workload NAME " in text and "--out PATH" in text and "treasurehunt" not in text
    text = helped("import", "--workload", "cartpole", "--help")
    assert "  --workload NAME " in text and "--learner.lr" in text


@pytest.mark.parametrize("columns", [80, 100])
def test_the_list_of_commands_fits(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = helped("--help")
    assert max(map(len, text.splitlines())) <= columns
    assert " ".join(COMMANDS["inspect"].split()) in " ".join(text.split())


def test_a_preset_changes_the_defaults_that_are_shown():
    assert "(62500)" in helped("train", "hypergrid", "--preset", "published", "--help")


BUILT_IN = [
    *WORKLOADS,
    *(place.name for place in SOURCES.values() if "NAME" not in place.name and ":" not in place.name),
]


@pytest.mark.parametrize(
    "line",
    [
        *BUILT_IN,
        "minatar/breakout",
        pytest.param("jaxmarl/MPE_simple_spread_v3", marks=pytest.mark.slow),
        "cartpole --protocol purejaxql",
        "hypergrid --preset demo",
    ],
)
def test_every_preset_is_said_to_be_something_else(line, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    protocol = line.partition("--protocol ")[2] or None
    workload = find_workload(line.split()[0])
    presets = workload.family.presets(workload.name, protocol)
    text = helped("train", *line.split(), "--help").partition("presets:\n")[2].partition("\n\n")[0]
    entries = [" ".join(one.split()) for one in re.split(r"\n(?=  \S)", text)]
    about = dict(entry.split(" ", 1) for entry in entries)
    assert list(about) == list(presets) and len(set(about.values())) == len(presets)
    told = workload.family.about_presets(presets)
    for name, words in about.items():
        assert told[name].split()[0] in words, "not described by its settings"
        assert ("used if none is named" in words) == (name == "default")
        assert ("same as default" in words) == (name != "default" and presets[name] == presets["default"])


def test_a_preset_that_nothing_is_said_of_is_described_by_its_settings():
    presets = find_workload("hypergrid").family.presets("hypergrid")
    lines = help_page.preset_lines(presets, {})
    assert lines["default"] == "used if none is named"
    assert lines["demo"] == "world.side 16, iterations 5,000"


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"doctor", "rungs"}))
def test_no_help_has_programmers_noise_or_lines_that_do_not_fit(command, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = helped(command, "--help")
    assert text.startswith(f"usage: xladder {command}") and "--" in text
    assert not re.search(r"None|\bSTR\b|\bINT\b|VALUE", text)
    assert max(map(len, text.splitlines())) <= columns


@pytest.mark.parametrize("line", ["resume", "eval", "sample", "plot", "export", "runs"])
def test_the_help_of_a_run_has_every_flag(line, monkeypatch):
    monkeypatch.setenv("COLUMNS", "10000")
    mine = helped(line, "--help")
    monkeypatch.setattr("xladder.cli.help_page.ASKED", set())
    tyros = helped(line, "--help")
    assert "positional" in tyros and "positional" not in mine
    assert flags(mine) == flags(tyros) | (set() if line in help_page.WITHOUT_CODE else CODE)


def test_the_help_says_what_has_to_be_given():
    text = " ".join(helped("export", "--help").split())
    assert "usage: xladder export RUN [OPTIONS]" in text
    assert "it must not exist. (required)" in text and text.count("required") == 2
    assert "usage: xladder diff RUN RUN [OPTIONS]" in helped("diff", "--help")
