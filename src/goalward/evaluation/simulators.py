"""Running simulators in worker processes: actions in, frames and verdicts out.

A few simulators work through many episodes, because some take hundreds of megabytes. Each belongs
to one worker process for good; which one does not change the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from goalward.core.arrays import Array
from goalward.engines.local import Actors, actors
from goalward.tasks import get_task
from goalward.tasks.task import (
    Policy,
    Protocol,
    RenderConfig,
    Simulator,
    State,
    SuccessChecker,
)


def begin(simulator: Simulator, protocol: Protocol, start: State, goal: State) -> None:
    """Restore the start and, where the environment is the judge, give it the goal."""
    simulator.restore(start)
    if protocol.environments_own:
        simulator.set_goal(goal)


def run_episode(
    simulator: Simulator, protocol: Protocol, goal: State, policy: Policy, budget: int
) -> int | None:
    """Let `policy` act until success or until the budget is spent.

    Returns:
        The number of steps to success, or None.
    """
    referee = SuccessChecker(protocol, goal)
    for step in range(1, budget + 1):
        verdict = simulator.step(policy())
        if referee.judge(simulator.state(), environment_verdict=verdict):
            return step
    return None


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one simulator shows."""

    frame: Array  # uint8 (side, side, 3)
    row: State  # the true state
    success: bool = False


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """What a worker needs to know to build its simulators."""

    task: str
    protocol: str
    scene: RenderConfig


class SimulatorPool:
    """Simulators numbered 0, 1, ..., spread over worker processes."""

    def __init__(self, workers: Actors, number: int) -> None:
        self._workers, self.number = workers, number

    def begin(self, pairs: Mapping[int, tuple[State, State]]) -> dict[int, StepResult]:
        """Restore the (start, goal) given for each simulator, and show the start."""
        return self._ask("begin", pairs)

    def step(self, actions: Mapping[int, Array]) -> dict[int, StepResult]:
        """Advance the simulators that have an action by one step."""
        return self._ask("step", actions)

    def _ask(self, name: str, content: Mapping[int, Any]) -> dict[int, StepResult]:
        shares: dict[int, dict[int, Any]] = {}
        for simulator, part in content.items():
            shares.setdefault(simulator % self._workers.number, {})[simulator] = part
        answers = self._workers.ask({worker: (name, share) for worker, share in shares.items()})
        return {simulator: found for answer in answers for simulator, found in answer.items()}


@contextmanager
def simulator_pool(
    task: str, protocol: str, scene: RenderConfig, *, number: int, workers: int
) -> Iterator[SimulatorPool]:
    """So many simulators in so many worker processes.

    Raises:
        ValueError: a number below 1, or a worker could not build a simulator or died.
    """
    if number < 1:
        raise ValueError(f"there must be at least 1 environment, got {number}")
    setting = _Setting(task=task, protocol=protocol, scene=scene)
    with actors(_Stage, setting, workers=min(workers, number)) as pool:
        yield SimulatorPool(pool, number)


class SimulatorPools:
    """Pools that start their workers when first used, which takes seconds.

    One is open at a time: another task, protocol or scene closes the one before.

    Args:
        workers: Processes of a pool.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._stack = ExitStack()
        self._open: tuple[_Setting, SimulatorPool] | None = None

    def __enter__(self) -> SimulatorPools:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._open = None

    def pool(self, task: str, protocol: str, scene: RenderConfig, number: int) -> SimulatorPool:
        """So many simulators, not yet started."""
        setting = _Setting(task=task, protocol=protocol, scene=scene)
        return _WaitingPool(lambda: self._started(setting, number), number)

    def _started(self, setting: _Setting, number: int) -> SimulatorPool:
        if self._open is None or self._open[0] != setting or self._open[1].number < number:
            self._stack.close()
            pool = simulator_pool(
                setting.task,
                setting.protocol,
                setting.scene,
                number=number,
                workers=self._workers,
            )
            self._open = (setting, self._stack.enter_context(pool))
        return self._open[1]


class _WaitingPool(SimulatorPool):
    """A pool that is looked for at every use."""

    def __init__(self, started: Callable[[], SimulatorPool], number: int) -> None:
        self._started, self.number = started, number

    def _ask(self, name: str, content: Mapping[int, Any]) -> dict[int, StepResult]:
        return self._started()._ask(name, content)


class _Stage:
    """A worker's simulators, built when first needed."""

    def __init__(self, setting: _Setting) -> None:
        self._task = get_task(setting.task)
        self._protocol = self._task.protocols[setting.protocol]
        self._scene = setting.scene
        self._simulators: dict[int, Simulator] = {}
        self._referees: dict[int, SuccessChecker] = {}

    def __call__(self, request: tuple[str, dict[int, Any]]) -> dict[int, StepResult]:
        name, content = request
        act = self._begin if name == "begin" else self._step
        return {number: act(number, part) for number, part in content.items()}

    def _begin(self, number: int, pair: tuple[State, State]) -> StepResult:
        if number not in self._simulators:
            self._simulators[number] = self._task.simulator(self._scene)
        start, goal = pair
        begin(self._simulators[number], self._protocol, start, goal)
        self._referees[number] = SuccessChecker(self._protocol, goal)
        return self._show(number, success=False)

    def _step(self, number: int, action: Array) -> StepResult:
        simulator = self._simulators[number]
        verdict = simulator.step(action)
        success = self._referees[number].judge(simulator.state(), environment_verdict=verdict)
        return self._show(number, success=success)

    def _show(self, number: int, *, success: bool) -> StepResult:
        simulator = self._simulators[number]
        return StepResult(frame=simulator.render(), row=simulator.state(), success=success)
