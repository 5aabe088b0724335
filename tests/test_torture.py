"""`python -m tests.torture`: its rows, its table, and the page that shows it."""

import json

import pytest

from tests.torture import lives, page, table

FACTS = {
    "seed": 3,
    "scale": 0.1,
    "seconds": 3600,
    "slowness": 4.2,
    "command": "python -m tests.torture",
    "environment": {"git_commit": "0123456789abcdef", "cores": 2, "python": "3.11.7", "versions": {"jax": "0.10.2"}},
}


def test_the_page_shows_the_table_that_was_measured():
    text = page.PAGE.read_text()
    assert page.BEGIN in text and page.END in text
    assert page.shown(text) == page.expected()


def test_a_row_that_fails_is_shown_as_failed_and_the_others_are_tried():
    def fail(count, rng, folder):
        raise AssertionError("another run than the one left alone")

    rows = [
        table.Row("kills", "one", fail, True),
        table.Row("ray", "other", lambda count, rng, folder: f"{count} tried"),
    ]
    reported = []
    found = table.attempt_all(rows, {"kills": 1, "ray": 4}, 0, lambda outcomes, line: reported.append(len(outcomes)))
    assert [one.passed for one in found] == [False, True] and reported == [1, 2]
    text = table.to_markdown(json.loads(table.to_json(found, FACTS)))
    assert "| one | FAILED: AssertionError: another run" in text and "| other | 4 tried |" in text
    assert page.shown(page.replaced(f"a\n{page.BEGIN}old\n{page.END}b\n", text)) == text


def test_every_row_has_a_count_and_a_name_of_its_own():
    rows = table.all_rows()
    assert {row.group for row in rows} == set(table.COUNTS)
    assert len({row.fault for row in rows}) == len(rows)
    small = table.scaled(table.COUNTS, 0.01)
    assert small["kills"] == 1 and small["ray"] == 4 and small["damages"] == 5


def test_patience_grows_with_the_load(monkeypatch):
    monkeypatch.setattr(lives, "slowness", lambda: 1.1)
    assert lives.patience(10.0) == 10.0
    assert not lives.wait_until(lambda: False, 0.01)
    monkeypatch.setattr(lives, "slowness", lambda: 8.0)
    assert lives.patience(10.0) == pytest.approx(120.0)
