"""Devices and threads by name."""

from __future__ import annotations

import pytest
import torch

from goalward.core.machine import choose_device, use_threads


def test_a_device_that_is_not_there_is_refused_in_one_line() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(ValueError, match="is not available here; use --device cpu"):
        choose_device("cuda:77")
    for name in ("gpu", "meta", "xpu:7"):
        with pytest.raises(ValueError, match="is not one of cpu, cuda, mps"):
            choose_device(name)
    with pytest.raises(ValueError, match="threads must be 1 to 32768, got 0"):
        use_threads(0)
