"""The reference names everything there is."""

import inspect
import re
from pathlib import Path

import xladder
from xladder import errors
from xladder.runs import directory
from xladder.sorrel import __all__ as SORREL

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"


def test_the_help_in_the_reference_is_what_commands_print(monkeypatch):
    monkeypatch.syspath_prepend(str(REFERENCE.parent / "_extensions"))
    import commands

    assert commands.PAGE.read_text() == commands.page(), "run: python docs/_extensions/commands.py"


def test_every_public_name_is_in_the_reference_and_stands_alone():
    text = (REFERENCE / "api.md").read_text()
    for name in [*xladder.__all__, *SORREL]:
        assert re.search(rf"\b{name}\b", text), name
    for name in set(xladder.__all__) - {"RUNGS", "WORKLOADS"}:
        said = inspect.getdoc(getattr(xladder, name)) or ""
        assert len(said.split()) >= 5 and said[0].isupper() and said.split("\n")[0][-1] in ".:", name


def test_every_file_of_a_run_is_in_the_reference():
    text = (REFERENCE / "files.md").read_text()
    files = re.findall(r"^(\S+)  ", directory.__doc__ or "", re.MULTILINE)
    assert len(files) > 8 and not [name for name in files if f"| `{name}` |" not in text]


def test_every_exit_code_is_in_the_reference():
    lines = (REFERENCE / "exit-codes.md").read_text().splitlines()
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.XladderError)]
    for kind in set(kinds) - {errors.XladderError}:
        [line] = [line for line in lines if f"`{kind.__name__}`" in line]
        assert line.startswith(f"| {kind.exit_code} |")


def test_messages_are_read_from_the_code(monkeypatch):
    monkeypatch.syspath_prepend(str(REFERENCE.parent / "_extensions"))
    import messages

    assert {name: getattr(errors, name).exit_code for name in messages.CODES} == messages.CODES
    text = messages.tables()
    assert "There is no … `…`." in text and "but it has to be one of" in text


def test_fractions_without_braces_are_drawn_as_latex_reads_them(monkeypatch):
    monkeypatch.syspath_prepend(str(REFERENCE.parent / "_extensions"))
    import mathml

    text = re.sub(r"\s", "", mathml.mathml(r"\tfrac12 e^2 + \frac1N", False))
    assert "<mn>1</mn><mn>2</mn></mfrac>" in text and "<mn>1</mn><mi>N</mi></mfrac>" in text
