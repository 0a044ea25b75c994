"""Tensors of a file fit a module, or are refused before the module asks for memory."""

from __future__ import annotations

import resource

import pytest
import torch
from torch import nn

from artifact_helpers import refusal
from goalward.core.tensors import make_module, tensors_id

GOOD = {"weight": torch.ones(2, 3, dtype=torch.float16), "bias": torch.zeros(2)}


def test_a_module_takes_the_tensors_in_its_own_types_and_draws_nothing() -> None:
    torch.manual_seed(0)
    module = make_module(lambda: nn.Linear(3, 2), GOOD, "a.safetensors")
    assert module.weight.dtype == torch.float32 and module.weight.eq(1).all()
    drawn = torch.rand(())
    torch.manual_seed(0)
    assert torch.equal(torch.rand(()), drawn)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bias": torch.zeros(3)}, "tensor bias has shape (3,) instead of (2,)"),
        ({"bias": torch.zeros(2).int()}, "tensor bias has type int32 instead of float32"),
        ({"bias": 3}, "tensor bias is a int, not a plain tensor"),
        ({"more": torch.zeros(2)}, "tensor more is not part of this configuration"),
        ({"bias": torch.tensor([0, torch.nan])}, "tensor bias holds NaN or infinity"),
        ({"bias": torch.tensor([0, 1e300], dtype=torch.float64)}, "tensor bias holds NaN or inf"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused_by_name(
    changes: dict[str, object], message: str
) -> None:
    said = refusal(lambda: make_module(lambda: nn.Linear(3, 2), {**GOOD, **changes}, "a"))
    assert said.startswith(f"a: {message}")
    missing = {name: value for name, value in GOOD.items() if name != "bias"}
    assert "tensor bias is missing" in refusal(
        lambda: make_module(lambda: nn.Linear(3, 2), missing, "a")
    )


@pytest.mark.parametrize("width", [2**40, 2**62])
def test_a_damaged_size_asks_for_no_memory(width: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert refusal(lambda: make_module(lambda: nn.Linear(3, width), GOOD, "a")).startswith("a: ")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**14  # KiB


def test_an_id_changes_with_names_types_shapes_and_bits_but_not_with_the_order() -> None:
    zero, one = torch.zeros(2), torch.ones(2)
    assert tensors_id({}, {"a": zero, "b": one}) == tensors_id({}, {"b": one, "a": zero})
    others = ({"b": zero}, {"a": zero.int()}, {"a": zero[:, None]}, {"a": -zero}, {"a": one})
    ids = {tensors_id({}, {"a": zero}), tensors_id({"x": 1}, {"a": zero})}
    assert len(ids | {tensors_id({}, other) for other in others}) == 7
