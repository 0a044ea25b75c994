"""Thousands of bad calls of the public API, each answered by a `ValueError` that names it.

A row of `APIS` draws one bad argument beside good ones; a row of `CONFIGS` spoils one field. Each
has a good call beside it, so that none passes because everything is refused.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import bad_controller_calls  # noqa: F401 - this and the next three fill the table
import bad_data_calls  # noqa: F401
import bad_evaluation_calls  # noqa: F401
from bad_call_kit import APIS, EXAMPLES, Call, Draw, Kit
from bad_configs import CONFIGS
from bad_values import refused

SHARES = [0.2, pytest.param(1.0, marks=pytest.mark.slow)]  # of the calls
SPARE_MEMORY, SPARE_SECONDS = 2**31, 300  # a test that wants more is at fault


@pytest.fixture(name="kit", scope="module")
def kit_fixture(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    return Kit(tmp_path_factory.mktemp("kit"))


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    """A hang or a huge allocation fails a test, not the machine."""

    def too_long(*_: object) -> None:
        pytest.fail(f"no answer in {SPARE_SECONDS} seconds")

    before = resource.getrlimit(resource.RLIMIT_AS)
    if (statm := Path("/proc/self/statm")).exists():
        used = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + SPARE_MEMORY, before[1]))
    handler = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SPARE_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, handler)
    resource.setrlimit(resource.RLIMIT_AS, before)


def every_example(examples: int, bad: Callable[[Draw], tuple[Call, str]]) -> None:
    """Make so many bad calls, the same every time."""
    calls = 0

    @settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data: st.DataObject) -> None:
        nonlocal calls
        call, named = bad(data.draw)
        calls += 1
        refused(call, named)

    check()
    assert calls >= examples


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", APIS)
def test_a_bad_call_is_refused_by_name(name: str, share: float, kit: Kit) -> None:
    one = APIS[name]
    one.good(kit)
    every_example(round(share * one.examples), lambda draw: (one.bad(draw, kit), one.named))
    one.good(kit)  # what was refused has changed nothing


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__name__)
def test_a_config_with_a_bad_field_is_refused_by_name(config: type, share: float) -> None:
    fields = CONFIGS[config]
    config(**fields.good)
    one_field = fields.bad(config)

    def bad(draw: Draw) -> tuple[Call, str]:
        name, value = draw(one_field)
        return lambda: config(**{**fields.good, name: value}), name

    every_example(round(share * EXAMPLES), bad)
