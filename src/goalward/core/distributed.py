"""Training on several devices or machines: rank, number of processes, means over all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.nn import functional as differentiable


@dataclass(frozen=True)
class Replica:
    """One of the processes that train together; without others it is the first of one."""

    rank: int
    count: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def share(self, batch: int) -> slice:
        """This replica's part of a batch."""
        size = batch // self.count
        return slice(self.rank * size, (self.rank + 1) * size)


ALONE = Replica(0, 1, torch.device("cpu"))


@contextmanager
def joined_replicas(device: torch.device) -> Iterator[Replica]:
    """Join the other processes when started by `torchrun`; otherwise train alone."""
    if not dist.is_torchelastic_launched():
        yield Replica(0, 1, device)
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Replica(dist.get_rank(), dist.get_world_size(), device)
    finally:
        dist.destroy_process_group()


_alone: ContextVar[bool] = ContextVar("alone", default=False)


@contextmanager
def as_only_replica() -> Iterator[None]:
    """Compute without the other replicas: for work that only the first one does."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def is_first_process() -> bool:
    """Whether this process prints, also before the processes are joined."""
    return os.environ.get("RANK", "0") == "0" or not dist.is_torchelastic_launched()


def local_processes() -> int:
    """Processes that train together on this machine and share its memory."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def num_replicas() -> int:
    """Processes that train together with this one, itself included."""
    if _alone.get() or not (dist.is_available() and dist.is_initialized()):
        return 1
    return dist.get_world_size()


def mean_over_replicas(value: Tensor) -> Tensor:
    """The mean of a tensor over all replicas; its gradient reaches every replica's own part.

    A loss that every replica computes from such means has, after the usual averaging of gradients,
    the gradient of the one loss over the whole batch.
    """
    count = num_replicas()
    return differentiable.all_reduce(value) / count if count > 1 else value
