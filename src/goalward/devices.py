"""Where to compute: the device and the threads that the user asks for, checked."""

from __future__ import annotations

import os
import platform

import torch

from goalward.checks import shown, whole_number
from goalward.workers import usable_cpus

KINDS = ("cpu", "cuda", "mps")


def choose_device(name: str) -> torch.device:
    """A torch device that is there; `auto` takes a GPU where there is one.

    Raises:
        ValueError: torch does not know the device, or this machine does not have it.
    """
    if not isinstance(name, str):
        raise ValueError(f"device {shown(name)} is not one of {', '.join(KINDS)}")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        name = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"  # torchrun: each process its own GPU
    if name.partition(":")[0] not in KINDS:
        raise ValueError(f"device {shown(name)} is not one of {', '.join(KINDS)}")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {shown(name)} is not available here; use --device cpu") from error
    return device


def choose_devices(name: str) -> tuple[torch.device, ...]:
    """As `choose_device`, for work that can be shared: `auto` and `cuda` take every GPU there is.

    Raises:
        ValueError: torch does not know the device, or this machine does not have it.
    """
    found = tuple(torch.device("cuda", k) for k in range(torch.cuda.device_count()))
    every = name in ("auto", "cuda") and "LOCAL_RANK" not in os.environ
    return found if every and found else (choose_device(name),)


def use_threads(number: int | None) -> None:
    """Compute with so many CPU threads; None leaves torch's own choice."""
    if number is None:
        return
    torch.set_num_threads(whole_number(number, "threads", most=2**15))


def machine() -> str:
    """What a figure was measured on."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{processor()}, {gpu}"


def processor() -> str:
    """The CPUs, with the instructions that torch computes with: these decide how fast they are."""
    cpus, instructions = usable_cpus(), torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()} ({instructions}), {cpus} CPU{'s' if cpus > 1 else ''}"
