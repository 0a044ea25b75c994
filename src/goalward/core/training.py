"""Everything a training needs to go on: weights and the optimiser's moments, in one file."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from goalward.core.distributed import num_replicas
from goalward.core.tensors import read_tensors, require_finite, write_tensors

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def make_optimiser(module: nn.Module, *, lr: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW whose moments exist from the start, so that they can be filled in."""
    parameters = list(module.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay, fused=True)
    for parameter in parameters:
        optimiser.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return optimiser


def save_state(path: Path, module: nn.Module, optimiser: torch.optim.AdamW, step: int) -> None:
    """Write the state after `step` steps, whole or not at all; never one that is not finite."""
    tensors = _tensors(module, optimiser)
    require_finite(tensors, path)
    write_tensors(path, tensors, {"step": str(step)})


def restore_state(
    path: Path, module: nn.Module, optimiser: torch.optim.AdamW, *, is_first: bool
) -> int:
    """Fill in the state and return the steps done; 0 where there is no file yet.

    Only the first replica reads the file; the others receive what it read.
    """
    step, tensors = 0, _tensors(module, optimiser)
    if is_first and path.exists():
        saved, facts = read_tensors(path)
        if saved.keys() != tensors.keys():
            raise ValueError(f"{path}: belongs to another training; delete it to start anew")
        step = int(facts["step"])
        for name, tensor in tensors.items():
            tensor.copy_(saved[name])
    if num_replicas() == 1:
        return step
    done = torch.tensor(step, device=next(module.parameters()).device)
    for tensor in (done, *tensors.values()):
        dist.broadcast(tensor, src=0)
    return int(done)


def _tensors(module: nn.Module, optimiser: torch.optim.AdamW) -> dict[str, Tensor]:
    """Every tensor of the state, detached but not copied, in a fixed order."""
    tensors = {f"module.{name}": tensor.detach() for name, tensor in module.state_dict().items()}
    for name, parameter in module.named_parameters():
        for moment in MOMENTS:
            tensors[f"optimiser.{name}.{moment}"] = optimiser.state[parameter][moment]
    return tensors
