"""The planning benchmark compares like with like; how fast anything is, no test says."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch

from goalward.planning.cost import LatentCost

# stable-worldmodel misses a game library that nothing here uses.
pytestmark = pytest.mark.filterwarnings("ignore:ale-py not found:UserWarning")


@pytest.fixture(name="bench")
def bench_fixture(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Benchmarks are no part of the installed package."""
    pytest.importorskip("stable_worldmodel")
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1]))
    return importlib.import_module("benchmarks.plan")


@torch.inference_mode()
def test_both_sides_give_plans_the_same_costs(bench: ModuleType) -> None:
    model = bench.make_model()
    z, goal = bench.latents(2, 192)
    plans = torch.randn(2, 3, 5, 10, generator=torch.Generator().manual_seed(0))
    info = {
        name: tensor[:, None].expand(-1, 3, *tensor.shape[1:])
        for name, tensor in bench.their_info(2, 192).items()
    }
    expected = bench.their_model(model).get_cost(info, plans)
    assert expected.std() > 0
    torch.testing.assert_close(LatentCost(model, z[:, None], goal)(plans), expected)


def test_a_rollouts_arithmetic_is_counted_as_the_layers_sizes_say(bench: ModuleType) -> None:
    config = bench.make_model().config
    # Inputs, outputs, and rows: windows of 1, 2, 3, 3 and 3 steps, in two blocks each.
    layers = [(192, 6 * 192), (192, 3 * 256), (256, 192), (192, 512), (512, 192)]
    wanted = sum(2 * i * o * 2 * (1 + 2 + 3 + 3 + 3) for i, o in layers)
    wanted += 2 * 2 * 2 * 256 * (1 + 4 + 9 + 9 + 9)  # queries times keys, weights times values
    wanted += sum(2 * i * o * 5 for i, o in [(192, 512), (512, 192)])  # the head
    wanted += sum(2 * i * o * 5 for i, o in [(10, 10), (10, 768), (768, 192)])  # the actions
    assert bench.rollout_operations(config, 5) == wanted


@pytest.mark.parametrize(("wanted", "code"), [(0.0, 0), (1e9, 1)])
def test_the_planning_benchmark_reports_and_fails_below_its_bar(
    bench: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wanted: float,
    code: int,
) -> None:
    monkeypatch.setattr(bench, "WANTED", {2: wanted})
    monkeypatch.setattr(bench, "WITHIN", 1e9)
    assert bench.main(bench.Arguments(environments=(2,), iterations=1, repeats=1)) == code
    assert ("below" in capsys.readouterr().out) == bool(code)
