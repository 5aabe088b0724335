"""Input that is wrong or made to do harm: commands, files, run directories that are shown, odd surroundings."""

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests import malformed
from tests.test_report import hostile_run
from tests.test_watch import Served
from tests.torture.damage import fuzz, memory_used, told
from tests.torture.kills import CASES
from tests.torture.lives import patience, quietly

SCRIPT = b"<script>window.hacked"


def nonsense(count: int, rng: random.Random, folder: Path) -> str:
    """Command lines that have to be refused."""
    (folder / "here").mkdir()
    before = Path.cwd()
    os.chdir(folder / "here")
    try:
        for case in malformed.cases(rng, count, folder):
            code, said = quietly(case.words)
            assert code == 2 and "Traceback" not in said, (case, code, said)
            assert not case.suggestion or f"`{case.suggestion}`" in said, (case, said)
            assert not list((folder / "here").iterdir()), case
    finally:
        os.chdir(before)
    return f"{count} of {count} refused with exit 2, nothing written"


def shown(count: int, rng: random.Random, folder: Path) -> str:
    """Hostile runs with other bytes in some file, as a report and as the page that `watch` serves."""
    whole = hostile_run(folder / "whole")
    codes: dict[int, int] = {}
    for number in range(count):
        run, page = folder / str(number), folder / f"{number}.html"
        shutil.copytree(whole, run)
        file = fuzz(run, rng).name
        code, said = quietly(["report", str(run), "--out", str(page)])
        assert code in (0, 2, 3) and "bug" not in said and "Traceback" not in said, (file, code, said)
        assert not page.exists() or SCRIPT not in page.read_bytes(), file
        codes[code] = codes.get(code, 0) + 1
        served = Served(run)
        try:
            status, _, body = served.ask(f"/{served.token}/")
            assert status == 200 and SCRIPT not in body, (file, status)
            name, data = next(served.events())
            assert isinstance(data, dict) and len(data["runs"]) + len(data["missing"]) == 1, (file, name)
            assert b"<" not in served.watcher.data, file
        finally:
            served.close()
        shutil.rmtree(run)
        page.unlink(missing_ok=True)
    return f"{count} of {count} shown as text or refused (report: {told(codes)}), {memory_used()}"


def malicious(count: int, rng: random.Random, folder: Path) -> str:
    """Files made to do harm: the tests of them, all of which have to pass."""
    chosen = "executed or objects or believed or links or huge or random or markup or escape or fifo"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-o", "addopts=", "-q", "-n", "0", "-k", chosen, "tests/test_exchange.py",
         "tests/test_checkpoints.py", "tests/test_trust.py"],
        capture_output=True, text=True, check=False, timeout=patience(900),
    )  # fmt: skip
    found = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0 and found, done.stdout[-1000:]
    return f"{found[1]} tests of them: nothing executed, nothing outside read or written"


def surroundings(count: int, rng: random.Random, folder: Path) -> str:
    """No network, no home, no locale, no terminal, an awkward path."""
    out = folder / "a b" / "ü∂€ 'q'"
    bare = {"PATH": os.environ["PATH"], "HOME": "/proc", "LANG": "C", "LC_ALL": "C"}
    bare |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    apart = ["unshare", "-rn"] if subprocess.run(["unshare", "-rn", "true"], check=False).returncode == 0 else []
    train = CASES["hypergrid"].words("fused")
    for command in ([*train, "--out", str(out)], ["eval", str(out)], ["resume", str(out)]):
        done = subprocess.run(
            [*apart, sys.executable, "-m", "xladder.cli.main", *command],
            env=bare, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=patience(300),
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stderr[-1000:])
    return f"HOME unwritable, LANG=C, no terminal, odd path{', no network' if apart else ''}: works"
