"""Where the time of a command goes, and what keeps a second start from compiling again."""

import json
import os
import re
import subprocess
import sys
import warnings
import wave

import jax
import pytest

from tests.conftest import TINY_CART
from xladder import program_cache, stopwatch
from xladder.cli.main import main
from xladder.core import compiling
from xladder.core.compiling import GPU_OPTIONS, LEVEL, options_for
from xladder.training import train
from xladder.worlds import late_imports

CART = [
    *("train", "cartpole", "--rung", "fused", "--steps", "64", "--world.num-envs", "2", "--eval-episodes", "0"),
    *("--learner.batch-size", "8", "--learner.memory", "64", "--learner.learning-starts", "8", "--learner.width", "8"),
    *("--checkpoint-every", "8"),
]


@pytest.mark.slow
def test_a_command_says_where_its_time_went(tmp_path, capsys):
    assert main([*CART, "--timings", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    phases = json.loads((tmp_path / "run" / "timings.json").read_text())["phases"]
    assert list(phases) == [name for name in stopwatch.PHASES if name in phases]  # in the order of a run
    assert {"start-up", "starting", "compiling", "first chunk", "training", "recording", "pictures"} <= phases.keys()
    assert phases["saving"] > 0
    for name, seconds in phases.items():
        (shown,) = re.findall(rf"^  {name} +([0-9.]+) s", said, re.M)
        assert abs(float(shown) - seconds) < 0.011
    assert "  whole  " in said
    assert f"compiled programs: {os.environ['JAX_COMPILATION_CACHE_DIR']} (" in said


def test_phases_add_up_to_the_whole(monkeypatch):
    now = iter([1.0, 6.0, 7.5])
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    clock = stopwatch.Stopwatch(begun=0.0)
    clock.lap("start-up")
    clock.take({"compiling": 2.0, "training": 2.5, "finishing": 0.25})
    clock.lap("pictures")
    found = clock.phases()
    assert found == {"start-up": 1.0, "compiling": 2.0, "training": 2.5, "rest": 0.5, "pictures": 1.5}
    assert list(found) == ["start-up", "compiling", "training", "pictures", "rest"] and sum(found.values()) == 7.5


@pytest.mark.slow
def test_python_gets_the_phases_too():
    phases = train("cartpole", "fused", config=TINY_CART, progress=False).phases
    assert {"start-up", "starting", "compiling", "training", "rest"} <= phases.keys()
    assert all(seconds > -1e-3 for seconds in phases.values())


def test_the_cache_is_in_the_users_folder_unless_told_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which watches for damaged programs
    settings: dict = {"jax_compilation_cache_dir": None, "jax_enable_compilation_cache": True}
    monkeypatch.setattr(program_cache, "_setting", settings.get)
    monkeypatch.setattr(jax.config, "update", settings.__setitem__)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    program_cache.enable()
    assert settings["jax_compilation_cache_dir"] is None and "not writable" in program_cache.describe()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings["jax_enable_compilation_cache"] = False
    program_cache.enable()
    assert settings["jax_compilation_cache_dir"] is None and "is off" in program_cache.describe()
    settings["jax_enable_compilation_cache"] = True
    program_cache.enable()
    place = tmp_path / "xladder" / "programs"
    assert settings["jax_compilation_cache_dir"] == str(place) and str(place) in program_cache.describe()
    assert (tmp_path / "xladder").stat().st_mode & 0o777 == 0o700
    settings["jax_compilation_cache_dir"] = str(tmp_path / "elsewhere")
    program_cache.enable()
    assert settings["jax_compilation_cache_dir"] == str(tmp_path / "elsewhere")
    assert warnings.showwarning.watches == tmp_path / "elsewhere", "damaged programs are noticed there, too"


def test_the_cache_forgets_what_was_not_used_for_longest(tmp_path):
    for number in range(4):
        (tmp_path / str(number)).write_bytes(bytes(100))
        os.utime(tmp_path / str(number), (1000 + (7 * number) % 4, 0))  # used in the order 0, 3, 2, 1
    program_cache.prune(tmp_path, 250)
    assert sorted(os.listdir(tmp_path)) == ["1", "2"]
    program_cache.prune(tmp_path / "missing", 0)


def test_a_module_to_draw_with_is_imported_when_it_is_used(monkeypatch):
    monkeypatch.delitem(sys.modules, "wave")
    monkeypatch.setattr(late_imports, "DRAWING", ("wave",))
    with late_imports.without_drawing():
        import wave as late
    assert isinstance(late, late_imports.LateModule) and "wave" not in sys.modules
    assert late.Wave_read.__name__ == wave.Wave_read.__name__ and "wave" in sys.modules
    assert not isinstance(sys.modules["wave"], late_imports.LateModule)


@pytest.mark.slow
def test_a_gymnax_world_and_metrics_import_nothing_to_draw_with_and_no_pytorch(tmp_path):
    code = """
import sys
from pathlib import Path
import numpy as np
from xladder.worlds.gymnax_world import load
from xladder.runs.metrics import MetricsWriter
load("cartpole")
writer = MetricsWriter(Path(sys.argv[1]), "tick", [0], 1)
writer.append([0], np.array([1]), {"return": np.ones((1, 1))}, 0.0)
print(sorted({"torch", "pandas", "seaborn", "scipy.stats", "matplotlib.pyplot"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("platform", "expected"),
    [("cpu", {LEVEL: 2}), ("gpu", GPU_OPTIONS), ("tpu", None)],
)
def test_how_xla_compiles_for_a_device(platform, expected, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    assert options_for(platform) == expected
    monkeypatch.setenv("XLA_FLAGS", " ".join(f"--{name}=0" for name in (LEVEL, *GPU_OPTIONS)))
    assert options_for(platform) is None


def test_an_option_that_xla_does_not_know_is_not_given(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    unknown = {"xla_gpu_no_such_option": 1, "xla_gpu_command_buffer_scheduling_mode": "NO_SUCH_MODE"}
    monkeypatch.setattr(compiling, "GPU_OPTIONS", GPU_OPTIONS | unknown)
    assert options_for("gpu") == {name: value for name, value in GPU_OPTIONS.items() if name not in unknown}
