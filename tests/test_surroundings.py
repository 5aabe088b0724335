"""What surrounds a run may be odd: the clock, the caches, the folder for results, another run in the same second."""

import json
import os
import subprocess
import sys
import time
import warnings

import pytest

from tests.conftest import TINY_GRID
from xladder import devices, program_cache
from xladder.cli import startup
from xladder.cli.main import main
from xladder.plans import plan
from xladder.runs.directory import RunDirectory
from xladder.runs.folders import new_folder
from xladder.training import train

TINY_RUN = ["train", "hypergrid", "--world.dim=2", "--world.side=5", "--learner.width=16", "--iterations=60"]
TINY_RUN += ["--checkpoint-every=10", "--eval-episodes=0"]
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t kind, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *) = 0;
    static int calls = 0;
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(kind, now);
    if (kind == CLOCK_REALTIME && calls++ / 40 % 2 == 0) now->tv_sec += atol(getenv("CLOCK_SHIFT"));
    return answer;
}
time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *where, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    where->tv_sec = now.tv_sec;
    where->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""


# ---- the clock -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_does_not_care_what_year_it_is(tmp_path, monkeypatch):
    real, jumps = time.time, iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: real() + (-1) ** next(jumps) * 4e8)  # twelve years back and forth
    config = plan("hypergrid", config=TINY_GRID, iterations=20).config
    train("hypergrid", config=config, out=tmp_path / "run", checkpoint_every=5, eval_episodes=0, progress=False)
    assert (tmp_path / "run" / "finished.json").exists() and [*tmp_path.glob("run/checkpoints/tick-*")]


@pytest.mark.slow
@pytest.mark.parametrize("shift", [130_000_000, -1_700_000_000])  # into 2030, and back to the seventies
def test_a_run_is_the_same_when_the_clock_of_the_machine_jumps(shift, tmp_path):
    (tmp_path / "clock.c").write_text(CLOCK)
    shim = str(tmp_path / "clock.so")
    try:
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", shim, str(tmp_path / "clock.c"), "-ldl"], check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("there is no C compiler to make a clock with")
    for name, more in (("plain", {}), ("jumping", {"LD_PRELOAD": shim, "CLOCK_SHIFT": str(shift)})):
        done = subprocess.run(
            [sys.executable, "-m", "xladder", *TINY_RUN, "--out", name],
            cwd=tmp_path,
            env=os.environ | more,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert main(["diff", str(tmp_path / "plain"), str(tmp_path / "jumping")]) == 0
    assert [*tmp_path.glob("jumping/checkpoints/tick-*")] and main(["runs", str(tmp_path)]) == 0


# ---- caches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{", "[1]", '{"a": "b", "hypergrid/fused": NaN}', "\udcff", "9" * 2**21]
)
def test_a_damaged_file_of_compile_times_is_written_anew(text, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = startup.cache_folder() / "compile-seconds.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    assert startup.last_compile("hypergrid/fused") is None
    startup.remember_compile("hypergrid/fused", 3.04)
    assert startup.last_compile("hypergrid/fused") == 3.0 and json.loads(file.read_text()) == {"hypergrid/fused": 3.0}


def test_a_damaged_program_is_removed_from_the_cache_without_a_word(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *more: seen.append(str(message)))
    program_cache.forget_damaged(tmp_path)
    program_cache.forget_damaged(tmp_path)
    for name in ("jit_chunk-1f-cache", "jit_chunk-1f-atime", "jit_other-2e-cache", "jit_chunk.txt"):
        (tmp_path / name).write_bytes(b"nonsense")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("something else", stacklevel=1)
        warnings.warn("Error writing persistent compilation cache entry for 'x': OSError: full", stacklevel=1)
        assert len(os.listdir(tmp_path)) == 4 and seen == ["something else"]
        warnings.warn("Error reading persistent compilation cache entry for 'jit_chunk': error: -3", stacklevel=1)
    assert seen == ["something else"] and sorted(os.listdir(tmp_path)) == ["jit_chunk.txt", "jit_other-2e-cache"]


@pytest.mark.slow
def test_a_command_with_damaged_caches_and_no_home_says_nothing_of_them(tmp_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_COMP", "JAX_PERS", "MPL"))}
    for number in range(3):
        home = "cache" if number < 2 else "file/not-a-folder"
        more = {"XDG_CACHE_HOME": str(tmp_path / home), "HOME": str(tmp_path / home), "XDG_CONFIG_HOME": "/proc/1/no"}
        done = subprocess.run(
            [sys.executable, "-m", "xladder", *TINY_RUN, "--out", str(number)],
            cwd=tmp_path,
            env=env | more,
            capture_output=True,
            text=True,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0 and "arning" not in said and "WARNING" not in said and "Error" not in said, said
        programs = [*tmp_path.glob("cache/xladder/programs/*")]
        assert programs and (number == 0 or all(file.stat().st_size > 50 for file in programs))
        if number == 0:
            for file in programs:
                file.write_bytes(file.read_bytes()[:50])
            (tmp_path / "cache/xladder/compile-seconds.json").write_text("[" * 100_000)
            (tmp_path / "file").write_text("")


# ---- where results go ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", ["eval run", "parity cartpole", "compare cartpole", "inspect cartpole", "check gym/CartPole-v1"]
)
@pytest.mark.parametrize("place", ["file/x.json", "file/deeper/x.json", "folder", "/proc/x.json"])
def test_a_json_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    words, place, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(startup, "prepare", lambda *given, **named: pytest.fail("this begins to measure"))
    RunDirectory.create("run", plan("cartpole", learner={"width": 8}, steps=160)).lock.release()
    assert main([*words.split(), "--json", place]) == 2
    assert f"`{place}` cannot be written" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "run"]


def test_runs_that_begin_in_the_same_second_take_different_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda *given: "20300101-000000")
    made = plan("hypergrid", config=TINY_GRID)
    names = [RunDirectory.create(None, made).path.name for _ in range(3)]
    assert names == [f"hypergrid-fused-20300101-000000{end}" for end in ("", "-2", "-3")]
    assert new_folder("cartpole-sweep").name == "cartpole-sweep-20300101-000000"
    discarded = RunDirectory.create(None, made)
    discarded.discard()
    assert not discarded.path.exists()


def test_no_folder_for_runs_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("")
    assert main(TINY_RUN) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "files", "limits"),
    [
        ("0::/job/step\n", {"job/memory.max": "4096\n", "job/step/memory.max": "max\n"}, [4096]),
        ("0::/elsewhere\n", {"memory.max": "512\n"}, [512]),
        ("5:cpu:/a\n4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "7\n", "a/memory.max": "3"}, [7]),
        ("5:cpu:/a\nnonsense\n", {"memory/memory.limit_in_bytes": "9"}, []),
    ],
)
def test_the_memory_of_a_container_counts(lines, files, limits, tmp_path, monkeypatch):
    (tmp_path / "groups").write_text(lines)
    for name, text in files.items():
        (tmp_path / "mount" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mount" / name).write_text(text)
    found = devices.cgroup_limits(tmp_path / "groups", tmp_path / "mount")
    assert found == limits
    assert devices.cgroup_limits(tmp_path / "none") == []
    monkeypatch.setattr(devices, "cgroup_limits", lambda: [*found, 2**63])
    assert devices.memory_of_machine() <= min([*limits, 2**62])
