"""Nonsense on the command line: a sentence, exit 2, nothing written, and the right name where a letter is wrong."""

import random

import pytest

from tests import malformed
from xladder.cli.main import main

PARTS, CASES = 6, 20  # cases of each part; `make torture` tries a thousand


def refuse(case, folder, capsys):
    """Check one case."""
    before = sorted(folder.rglob("*"))
    try:
        code = main(case.words)
    except SystemExit as stop:  # tyro's own way to refuse
        code = stop.code
    out, err = capsys.readouterr()
    said = out + err
    assert code == 2, (case, code, said)
    assert "Traceback" not in said and 0 < len(said) < 4000, (case, said)
    assert "\x1b[31m" not in said, case  # what was typed does not steer the terminal
    assert sorted(folder.rglob("*")) == before, case
    if case.suggestion:
        assert f"`{case.suggestion}`" in said, (case, said)


@pytest.mark.parametrize("part", range(PARTS))  # so that they may be shared out
def test_nonsense_is_refused(part, tmp_path, monkeypatch, capsys):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for case in malformed.cases(random.Random(part), CASES, tmp_path):
        refuse(case, tmp_path / "here", capsys)
