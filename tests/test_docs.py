"""Every block of the documentation runs, or says why not; commands that are not run would start."""

import re

import pytest

from tests.docs_blocks import ROOT, blocks, commands, missing_line, pages, shortened, words_of
from tests.docs_run import run_in
from tests.walks import from_pytorch, own_gridworld
from xladder.cli import options as cli_options
from xladder.cli.launch import LaunchOptions
from xladder.cli.main import COMMANDS, take_imports
from xladder.errors import UsageError

PAGES = pages()
NOTEBOOKS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.ipynb"))
WALKS = {walk.PAGE: walk.check for walk in (from_pytorch, own_gridworld)}


def marked(page: str):
    """A page as a parameter; a page that cannot be read is not slow, so that it is found at once."""
    try:
        slow = any(block.is_slow for block in blocks(page))
    except ValueError:
        slow = False
    return pytest.param(page, marks=pytest.mark.slow if slow else ())


@pytest.mark.parametrize("page", [marked(page) for page in PAGES])
def test_the_blocks_of_a_page_run(page, tmp_path):
    if any(block.is_run or "file" in block.controls for block in blocks(page)):
        run_in(tmp_path, page)
    if page in WALKS:
        WALKS[page](tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_runs(notebook, tmp_path):
    run_in(tmp_path, notebook)


BEFORE_THE_WORK = {
    "train": ("xladder.runs.directory.RunDirectory.create", "xladder.cli.hosts.train"),
    "sweep": ("xladder.sweeps.running.SweepDirectory.create",),
    "compare": ("xladder.runs.compare.compare",),
    "parity": ("xladder.cli.startup.prepare",),
    "inspect": ("xladder.cli.startup.prepare",),
}
"""What a command calls once its words are parsed and its plan is made. Other commands need a run that is not there."""


class Understood(Exception):
    """A command line makes sense."""


def check(words: list[str], monkeypatch) -> None:
    """Parse a command line and plan what it says as the command does, and stop there."""
    parse_words = cli_options.parse_words

    def stop(*arguments, **options):
        raise Understood

    def parse_and_stop(*arguments):
        parse_words(*arguments)
        raise Understood

    if not words or words[0].startswith("-") or "--help" in words or "--help-all" in words:
        return
    assert words[0] in COMMANDS
    if words[0] == "launch":
        place = next(i for i, word in enumerate(words) if i and word in COMMANDS)
        parse_words(LaunchOptions, words[1:place], "", "")
        hosts = words[words.index("--hosts") + 1] if "--hosts" in words else "2"
        meeting = ["--rung", "hosts", "--coordinator", "localhost:7000", "--num-hosts", hosts, "--host-id", "0"]
        return check([*words[place:], *meeting], monkeypatch)
    for flag in ("--config", "--from", "--world.table"):  # files that are not there
        if flag in words:
            place = words.index(flag)
            words = words[:place] + words[place + 2 :]
    with monkeypatch.context() as patch:
        if words[0] not in BEFORE_THE_WORK:
            patch.setattr(cli_options, "parse_words", parse_and_stop)
        for target in BEFORE_THE_WORK.get(words[0], ()):
            patch.setattr(target, stop)
        module = __import__(f"xladder.cli.{words[0]}", fromlist=["run"])
        with pytest.raises(Understood):
            module.run(take_imports([words[0], *words[1:]])[1:])


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_are_not_run_make_sense(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for block in blocks(page):
        if block.language != "console" or not {"skip", "sorrel"} & set(block.controls) or "fails" in block.controls:
            continue
        for words in (words for command in commands(block) for words in words_of(command)):
            own = [word for word in words if re.search(r"\w:\w", word)]  # code of the reader's
            if any(word.startswith("…") or word == "…" for word in words) or own:
                continue
            try:
                check(words, monkeypatch)
            except UsageError as error:
                pytest.fail(f"{block.where}: xladder {' '.join(words)}: {error}")


def test_what_make_demo_says_to_type_next_makes_sense(monkeypatch, tmp_path):
    recipe = re.search(r"^demo:.*?\n\n", (ROOT / "Makefile").read_text(), re.MULTILINE | re.DOTALL)
    lines = re.findall(r'^\t@echo "(.*)"$', recipe[0], re.MULTILINE)
    typed = [re.split(r"\s{3,}", line.removeprefix("Next:").strip())[0] for line in lines]
    assert typed[0] == "source .venv/bin/activate" and len(typed) > 2
    monkeypatch.chdir(tmp_path)
    for command in typed[1:]:
        [words] = words_of(command)
        check([word for word in words if word != "--help"], monkeypatch)


def test_what_is_shown_is_looked_for_in_order():
    printed = "one  1\ntwo 2\nthree 3\n"
    assert missing_line(["one 1", "three …"], printed) is None
    assert missing_line(["three 3", "one 1"], printed) == "one 1"
    assert missing_line(["thre …"], printed) == "thre …"


def test_figures_that_are_measured_may_differ_and_others_may_not():
    printed = "fused done: 0.6 ms per tick, loss -1.25e-07 (0.386), 4 seeds, started 06:05, 2,500.25 MB"
    shown = "fused done: 13.3 ms per tick, loss 3.1e-09 (0.31), 4 seeds, started 18:22, 5.1 MB"
    assert missing_line([shown], printed) is None
    assert missing_line(["4 seeds, started 18:22, …"], printed) is None
    for wrong in ("5 seeds,", "fused done: 1 ms", "fused done: 0.6 s", "seeds, started 18:2", "(0.386, 4 seeds,"):
        assert missing_line([wrong], printed) == wrong


def test_speeds_and_versions_differ_between_machines():
    printed = "fused 41,548 steps per second, JAX 0.10.2, 127.0.0.1, 4 steps"
    assert missing_line(["fused 1,653 steps per second, JAX 0.11.0, 127.0.0.1, 4 steps"], printed) is None
    for wrong in ("fused 1,653 ticks per second", "JAX 1.10", "127.0.0.1, 5 steps"):
        assert missing_line([wrong], printed) == wrong


def test_returns_have_to_be_close_to_what_is_shown():
    printed = "mean return 194.0 ± 63.4, random play −1.25, 3.1 s"
    assert missing_line(["mean return 186.8 ± 63.3, random play −1.1, 40.0 s"], printed) is None
    for stale in ("mean return 80.5 ± 63.3", "mean return 186.8 ± 6.3", "random play −0.5", "random play 1.25"):
        assert missing_line([stale], printed) == stale
    assert missing_line(["│ 80.5 │ 1.0 │"], "│ 194.0 │ 9.0 │") is None  # a table's heads say what is timed


def test_long_commands_are_shortened():
    assert shortened("xladder train cartpole --preset c51 --seeds 8 --steps 1e6 --device gpu  # long") == (
        "xladder train cartpole --preset c51 --steps 1000 --evaluate-episodes 0 --eval-episodes 2"
    )
    assert shortened("xladder compare hypergrid --rungs torch,fused") == (
        "xladder compare hypergrid --rungs torch,fused --iterations 4"
    )
    assert shortened("xladder parity cartpole") == "xladder parity cartpole"


def test_commands_are_found_in_a_line_of_shell():
    assert words_of("A=1 xladder runs --json - | head; echo xladder && xladder worlds > x  # xladder rm") == [
        ["runs", "--json", "-"],
        ["worlds"],
    ]
