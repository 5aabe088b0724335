"""What `xladder inspect` tells of a program: sizes and costs that can be checked by hand, and what it refuses."""

import json

import jax
import jax.numpy as jnp
import pytest

from tests.test_cli import call
from xladder.rungs.costs import account
from xladder.rungs.inspected import InspectingCompiler, traces
from xladder.runs import inspection, limits

GRID = [
    *("--world.dim", "2", "--world.side", "4", "--learner.batch-size", "4", "--learner.width", "8"),
    *("--evaluate-every", "0"),
]
SIDE = 64
PRODUCT = 2 * SIDE**3  # FLOP of one matrix product


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Nothing is measured longer than a test needs."""
    monkeypatch.setattr(inspection, "TIMED_SECONDS", 0.01)
    monkeypatch.setattr(limits, "SIDES", {"cpu": 256})
    monkeypatch.setattr(limits, "LENGTHS", {"cpu": 2**16})


def built(function):
    return InspectingCompiler().program(function, (), jnp.ones((SIDE, SIDE)))


def test_a_loop_is_followed_where_its_length_is_known():
    def scanned(x, unroll=1):
        return jax.lax.scan(lambda y, _: (jnp.tanh(y @ x), None), x, None, length=10, unroll=unroll)[0]

    for unroll in (1, 4, 10):
        found = account(built(lambda x, unroll=unroll: scanned(x, unroll)))
        assert found.followed.flops == pytest.approx(10 * PRODUCT, rel=0.05)
        assert found.once.flops <= found.followed.flops + 1
        assert found.open_loops == found.choices == 0
    assert account(built(scanned)).once.flops == pytest.approx(PRODUCT, rel=0.05)  # so XLA says


def test_loops_within_loops_are_followed():
    def inner(y):
        return jax.lax.scan(lambda z, _: (jnp.tanh(z @ z), None), y, None, length=3)[0]

    found = account(built(lambda x: jax.lax.scan(lambda y, _: (inner(y), None), x, None, length=5)[0]))
    assert found.followed.flops == pytest.approx(15 * PRODUCT, rel=0.05)


def test_what_depends_on_data_is_told():
    def function(x):
        x = jax.lax.while_loop(lambda y: y[0, 0] < 9, lambda y: y @ x, x)
        return jax.lax.cond(x[0, 0] > 0, lambda y: y @ y, lambda y: y, x)

    found = account(built(function))
    assert (found.open_loops, found.choices) == (1, 1)
    assert found.followed.flops == pytest.approx(2 * PRODUCT, rel=0.05)


def test_a_verb_is_built_once_for_each_kind_of_arguments():
    compiler = InspectingCompiler()
    function = compiler.function(lambda static, x: x + static)
    with traces() as seen:
        assert function(1, jnp.float32(1)) == 2 and function(1, jnp.float32(2)) == 3 and len(compiler.built) == 1
        assert function(1, jnp.ones(2)).shape == (2,) and len(compiler.built) == 2
    assert len(seen) >= 2
    assert [program.calls for program in compiler.built] == [2, 1]
    with traces() as seen:
        function(1, jnp.float32(3))
    assert not seen


@pytest.mark.slow
def test_parallel_and_fused_tell_the_same_of_a_tick(tmp_path, capsys):
    facts = {}
    for rung in ("parallel", "fused"):
        files = {flag: tmp_path / "new" / f"{rung}.{flag}" for flag in ("json", "jaxpr", "hlo")}
        flags = [word for flag, path in files.items() for word in (f"--{flag}", str(path))]
        assert call("inspect", "hypergrid", "--rung", rung, *flags, *GRID) == 0
        facts[rung] = json.loads(files["json"].read_text())
        assert "lambda" in files["jaxpr"].read_text()
        assert "HloModule" in files["hlo"].read_text()
        said = capsys.readouterr().out
        assert "FLOP/s" in said and "time per iteration" in said and "HLO instructions" in said
    for one in facts.values():
        assert one["traced_again"] == 0 and one["learning"]
        assert one["tick_seconds"] > 0 and one["per_tick"]["flops"] > 0
        (program,) = one["programs"]
        assert program["compile_seconds"] > 0 and program["instructions"] > 100
        memory = program["memory"]
        assert memory["peak"] >= memory["temporaries"] > 0
        for share in one["share"].values():
            assert share > 0
    assert facts["fused"]["per_tick"] == facts["parallel"]["per_tick"]


@pytest.mark.slow
def test_the_verbs_of_a_loop_on_the_host_are_counted(capsys):
    assert call("inspect", "hypergrid", "--rung", "sequential", "--json", "-", *GRID) == 0
    facts = json.loads(capsys.readouterr().out)
    calls = {program["name"]: program["calls_per_tick"] for program in facts["programs"]}
    assert calls["learn_one"] == calls["draw"] == 1 and calls["forward_policy"] > 1
    assert facts["per_tick"]["flops"] > 0 and set(facts["phases"]) == {"sampling", "update"}


def test_torch_has_times_and_says_why_there_is_no_more(capsys):
    assert call("inspect", "hypergrid", "--rung", "torch", *GRID) == 0
    said = capsys.readouterr().out
    assert "time per iteration" in said and "compiles nothing" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("hypergrid --rung fussed", "Did you mean `fused`?"),
        ("hypergrid --rung mesh", "`mesh` runs on several devices"),
        ("cartpole --rung actors", "inspect `fused` or `parallel`"),
        ("hypergird", "hypergrid"),
        ("", "needs a workload"),
        ("hypergrid --rung torch --hlo FOLDER/a", "no XLA program"),
        ("hypergrid --hlo FOLDER/file/a", "cannot be written"),
        ("hypergrid --jaxpr FOLDER", "cannot be written"),
        ("hypergrid --json FOLDER", "cannot be written"),
    ],
)
def test_bad_input_is_told_before_anything_is_measured(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(inspection, "inspect", None)
    (tmp_path / "file").write_text("")
    assert call("inspect", *words.replace("FOLDER", str(tmp_path)).split()) == 2
    assert said in capsys.readouterr().err
