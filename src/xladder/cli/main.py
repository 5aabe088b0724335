"""The `xladder` command: finds the subcommand, and turns errors into a message and an exit code."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import sys
import textwrap
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from itertools import pairwise

from xladder import __version__, user_code
from xladder.cli import supervisor
from xladder.cli.signals import end_at_once_on_signals
from xladder.distributed import supervised
from xladder.errors import (
    UsageError,
    XladderError,
    brief,
    out_of_memory,
    raised_in_callback,
    text_of,
    unknown,
    untraceable,
)
from xladder.foreign_names import command_hint
from xladder.stopwatch import command_begins

BEGUN = time.perf_counter()

COMMANDS = {
    "train": "train a workload on a rung; writes a run directory",
    "resume": "continue a run that was stopped or killed",
    "sweep": "try many settings at once: a table of trials, and the best one tested on other seeds",
    "launch": "start several processes of a run on this machine, to try `--rung hosts`",
    "compare": "run the same experiment on several rungs: a table of speed and return",
    "inspect": "show what a rung compiles, what a tick costs, and how close that is to the machine's limits",
    "check": "check that a world fulfils its contract: shapes, dtypes, episode ends, spaces",
    "parity": "verify that JAX and PyTorch learn the same, level by level",
    "eval": "evaluate the agents of a run, and compare them with a random policy",
    "sample": "draw objects from a trained sampler, as CSV",
    "export": "write the trained networks of a run as a file for PyTorch, or as safetensors",
    "import": "make a run directory from such a file, or from one of sorrel's",
    "runs": "list the runs in a folder, newest or best first",
    "rm": "remove runs; asks first",
    "plot": "draw the curves of several runs in one picture, or compare their scores over several worlds",
    "diff": "show where the metrics of two runs first differ, and in which settings and versions",
    "report": "write one HTML file about some runs that opens offline: curves, evaluation, settings, a replay",
    "watch": "show runs in a browser while they train",
    "worlds": "list every workload and world, and what each needs",
    "presets": "list presets: which algorithm is published under which protocol, with the sources of all numbers",
    "rungs": "show which workload runs on which rung",
    "doctor": "show versions, devices and which extras are installed",
}
TAKE_SETTINGS = ("train", "sweep", "compare", "inspect", "parity", "import", "presets")
"""Commands for a workload and its settings, which may name the user's own code; others are given a run."""
NAMING = ("--learner.torso", "--world.reward", "--world.name", "--workload")
"""Flags whose value may be the user's own code."""
OTHER_WORLDS = {
    "cartpole, minatar/NAME, …": "worlds of gymnax, with DQN or one of its successors",
    "atari/GAME": "Atari's games",
    "gym/ID, zoo/MODULE:NAME": "worlds of Gymnasium and PettingZoo",
    "jaxmarl/NAME": "worlds of JaxMARL",
}
"""What else there is to train, besides the workloads with names of their own."""
EXAMPLES = """\
  xladder train treasurehunt --preset demo
  xladder train treasurehunt --rung fused --epochs 1000 --seeds 8
  xladder train hypergrid --world.dim 4 --world.side 20 --loss tb --seeds 4
  xladder train cartpole --preset rainbow
  xladder train atari/pong --protocol dopamine --rung parallel --frames 10000000
  xladder sweep cartpole --learner.lr log:1e-4..1e-2 --trials 16 --seeds 4
  xladder compare treasurehunt --rungs torch,fused
  xladder train treasurehunt --help"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    command_begins(BEGUN if arguments is None else time.perf_counter())
    if arguments is None:  # only as a command: a calling program handles signals itself
        end_at_once_on_signals()
    words = list(sys.argv[1:] if arguments is None else arguments)
    # Before JAX is imported: allocate GPU memory as needed, and silence XLA's start-up messages.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if arguments is None:
        # Processes that a command starts do not import from the working directory, which may be a stranger's run.
        os.environ.setdefault("PYTHONSAFEPATH", "1")
    # Where its cache folder cannot be written, matplotlib warns and uses a temporary one: nothing a user has to know.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a terminal that cannot show ε prints a question mark instead of a traceback
    try:
        if any(word == "" or re.fullmatch("--[^=]+=", word) for word in words):
            raise UsageError(f"An argument is empty: `{shlex.join(['xladder', *words])}`.")
        if arguments is None and not supervised.take_up() and supervisor.is_needed(words):
            return supervisor.run(words, complain)
        words = take_imports(words)
        if not words or words[0] in ("-h", "--help", "help"):
            print(overview())
            return 0
        if words[0] == "--version":
            print(f"xladder {__version__}")
            return 0
        if words[0] not in COMMANDS:
            if hint := command_hint(words[0]):
                raise UsageError(f"There is no command `{words[0]}`. {hint} `xladder --help` lists all.")
            raise unknown("command", words[0], COMMANDS)
        return ended(import_module(f"xladder.cli.{words[0]}").run(words[1:]))
    except BrokenPipeError:
        # The reader (`| head`) has closed the pipe. Python would fail again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return ended(130)
    except Exception as error:
        return ended(complain(*format_error(error)))


def ended(code: int) -> int:
    """Tell a supervising process, if there is one, with which exit code the command ended."""
    supervised.tell(ended=code)
    return code


def take_imports(words: Sequence[str]) -> list[str]:
    """Remove `--import MODULE` and `--changed-code` from a command line, and allow the modules that the user names."""
    rest: list[str] = []
    named: list[str] = []
    given = iter(words)
    for word in given:
        if word == "--import":
            named.append(next(given, ""))
        elif word.startswith("--import="):
            named.append(word.removeprefix("--import="))
        elif word == "--changed-code":
            user_code.accept_changes()
        else:
            rest.append(word)
    for module in named:
        if not all(part.isidentifier() for part in module.split(".")):
            raise UsageError(f"`--import` is {module!r}, but it has to be the name of a module, such as `my_worlds`.")
        user_code.allow(module)
        user_code.import_module(module)  # it may register worlds
    user_code.allow_named(typed_names(rest))
    return rest


def typed_names(words: Sequence[str]) -> list[str]:
    """The worlds, torsos and rewards that a command line names.

    A run directory can be called anything, and somebody else may have called it. So the paths and other values on a
    command line name nothing, even if they look like `module:Name`.
    """
    command, *rest = words or [""]
    if command == "launch":  # it starts another command
        return typed_names(rest[next((i for i, word in enumerate(rest) if word in COMMANDS), len(rest)) :])
    if command == "check":
        return [word for before, word in pairwise(["", *rest]) if before != "--json" and not word.startswith("-")]
    if command not in TAKE_SETTINGS:
        return []
    found = [] if command == "import" else rest[:1]  # the workload; what comes first after `import` is a file
    for word, after in pairwise([*rest, ""]):
        flag, equals, value = word.partition("=")
        if flag in NAMING:
            found += (value if equals else after).split(",")  # several in a sweep
    return found


def overview() -> str:
    """The text of `xladder --help`."""
    width = min(shutil.get_terminal_size().columns, 120)  # that of every help; `help_page` takes long to import
    commands = "\n".join(
        textwrap.fill(summary, width, initial_indent=f"  {name:<9} ", subsequent_indent=" " * 12)
        for name, summary in COMMANDS.items()
    )
    about = "xladder trains the same learner on a ladder of rungs, from PyTorch to one XLA program."
    own = "Your own worlds, networks and rewards are named `module:Name`; every command takes `--import MODULE`."
    return (
        f"{textwrap.fill(about, width)}\n\nCommands (each has its own --help):\n{commands}\n\nExamples:\n{EXAMPLES}\n\n"
        + textwrap.fill(own, width)
    )


def complain(sentence: str, code: int) -> int:
    """Print an error message on standard error. Returns the exit code."""
    # A sentence may quote a name from someone else's file.
    print("".join(x if x.isprintable() or x == "\n" else "?" for x in f"xladder: {sentence}"), file=sys.stderr)
    return code


def format_error(error: BaseException) -> tuple[str, int]:
    """Turn an exception into a message and an exit code."""
    if isinstance(error, XladderError):
        if os.environ.get("XLADDER_TRACEBACK") and error.__cause__:  # what a user's own function raised
            traceback.print_exception(error.__cause__)
        return str(error), error.exit_code
    if isinstance(error, OSError):
        return f"{error.filename or 'A file'} cannot be used: {error.strerror or error}.", 5
    if isinstance(error, MemoryError):
        return "Out of memory: try a smaller batch, fewer agents or fewer seeds.", 5
    return explain(error), 5 if out_of_memory(error) else 1


def explain(error: BaseException) -> str:
    """Describe an unexpected error; prints the traceback if XLADDER_TRACEBACK is set."""
    if os.environ.get("XLADDER_TRACEBACK"):
        traceback.print_exc()
    first = (text_of(error).splitlines() or [""])[0][:300]
    if fault := untraceable(error):
        return f"A function of your own {fault}."
    if raised_in_callback(error):
        return f"A function of your own failed, called from a compiled program: {brief(error)}."
    if out_of_memory(error):
        return f"The device is out of memory: try fewer `--seeds` or a smaller `--learner.batch-size`. ({first})"
    return f"{type(error).__name__}: {first} This is a bug in xladder; XLADDER_TRACEBACK=1 shows where."


def split_workload(words: Sequence[str], command: str) -> tuple[str, list[str]]:
    """Split a command line into the name of the workload and the rest."""
    if words and not words[0].startswith("-"):
        from xladder.worlds.names import also_in_gymnasium

        name, rest = words[0], list(words[1:])
        if (note := also_in_gymnasium(name)) and not any(word.startswith("--host-id") for word in rest):
            print(note, file=sys.stderr)
        return name, rest
    from xladder.cli import help_page
    from xladder.registry import WORKLOADS

    if help_page.ASKED & {*words}:
        summaries = {name: workload.summary for name, workload in WORKLOADS.items()} | OTHER_WORLDS
        sys.stdout.write(help_page.without_workload(command, COMMANDS[command], summaries))
        raise SystemExit(0)
    raise UsageError(
        f"`xladder {command}` needs a workload: {', '.join(WORKLOADS)} or a world such as cartpole or atari/pong "
        f"(`xladder worlds` lists all). For example: xladder {command} {next(iter(WORKLOADS))}"
    )


if __name__ == "__main__":
    sys.exit(main())
