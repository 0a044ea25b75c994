"""Simulators in worker processes: actions in, frames and success out.

A few simulators work through many episodes, because some take hundreds of megabytes. Each stays in
one worker process; which one does not change the result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from typing import Any

import numpy as np

from goalward.core.arrays import Array
from goalward.engines import Actors, Engine
from goalward.engines.local import LocalEngine
from goalward.evaluation.pairs import Pair
from goalward.tasks.task import Policy, RenderConfig, Simulator, State, SuccessChecker, Task


@dataclass(frozen=True, kw_only=True)
class SimulatorController:
    """A controller that acts beside the simulator, in its process.

    Baselines need this that use the true state, or the recorded actions of a pair.
    """

    policy: Callable[[Task, Simulator, Pair], Policy]  # called at the start of every episode


def scripted_policy(name: str, task: Task, simulator: Simulator, pair: Pair) -> Policy:
    """The actions of one of the task's scripted baselines."""
    return task.scripted_baselines[name](simulator, pair.goal)


def replay_policy(task: Task, simulator: Simulator, pair: Pair) -> Policy:  # noqa: ARG001
    """The recorded actions, then zeros."""
    actions = chain(pair.recorded, repeat(np.zeros(task.action_dim, dtype=np.float32)))
    return lambda: next(actions)


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one simulator shows after a step."""

    frame: Array  # uint8 (side, side, 3); (0, 0, 3) where nobody needs it
    row: State  # the true state
    action: Array | None = None  # the one that led here; None at the start
    success: bool = False


class SimulatorPools:
    """Simulators numbered 0, 1, ..., in worker processes that start when first used.

    Starting takes seconds: the processes stay for the evaluations that follow, until one has
    another task, protocol or rendering.

    Args:
        workers: Processes at most; the result does not depend on their number.
        engine: Where they are (default: on this machine).
    """

    def __init__(self, workers: int = 1, engine: Engine | None = None) -> None:
        self._workers, self._engine = workers, LocalEngine() if engine is None else engine
        self.number = 0
        self._setting: tuple[Any, ...] = ()
        self._stack = ExitStack()
        self._actors: Actors | None = None

    def __enter__(self) -> SimulatorPools:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._actors = None

    def use(self, task: Task, protocol: str, render: RenderConfig, number: int) -> SimulatorPools:
        """The same, with at least this number of simulators of a task and protocol."""
        setting = (task, protocol, render)  # workers receive the task itself
        if setting != self._setting or number > self.number:
            self.__exit__()
            self._setting, self.number = setting, number
        return self

    def begin(
        self,
        pairs: Mapping[int, Pair],
        controller: SimulatorController | None = None,
        *,
        frames: bool = True,
    ) -> dict[int, StepResult]:
        """Restore the start of the pair given for each simulator, and show it.

        Args:
            pairs: By the simulators' numbers.
            controller: What gives the actions of the steps that follow (default: `step` does).
            frames: Whether to render them.
        """
        return self._ask("begin", {k: (pair, controller, frames) for k, pair in pairs.items()})

    def step(self, actions: Mapping[int, Array | None]) -> dict[int, StepResult]:
        """Advance simulators by one step; None leaves the action to their `SimulatorController`."""
        return self._ask("step", {k: (action,) for k, action in actions.items()})

    def _ask(self, method: str, arguments: Mapping[int, Any]) -> dict[int, StepResult]:
        if self._actors is None:
            processes = min(self._workers, self.number)
            actors = self._engine.actors(partial(_Worker, *self._setting), processes)
            self._actors = self._stack.enter_context(actors)
        shares: dict[int, dict[int, Any]] = {}
        for k, given in arguments.items():
            shares.setdefault(k % len(self._actors), {})[k] = given
        answers = self._actors.ask({worker: (method, share) for worker, share in shares.items()})
        return {k: found for answer in answers for k, found in answer.items()}


class _Worker:
    """The simulators of one worker process, built when first needed."""

    def __init__(self, *setting: Any) -> None:
        self._simulators: dict[int, _Simulator] = defaultdict(partial(_Simulator, *setting))

    def __call__(self, request: tuple[str, dict[int, Any]]) -> dict[int, StepResult]:
        method, arguments = request
        return {k: getattr(self._simulators[k], method)(*given) for k, given in arguments.items()}


class _Simulator:
    """One simulator, with the episode that it is in."""

    def __init__(self, task: Task, protocol: str, render: RenderConfig) -> None:
        self._task, self._protocol = task, task.protocols[protocol]
        self._simulator = task.simulator(render)

    def begin(self, pair: Pair, controller: SimulatorController | None, frames: bool) -> StepResult:
        self._simulator.restore(pair.start)
        if self._protocol.environments_own:
            self._simulator.set_goal(pair.goal)
        self._policy = None
        if controller is not None:
            self._policy = controller.policy(self._task, self._simulator, pair)
        self._checker = SuccessChecker(self._protocol, pair.goal)
        self._is_drawn = frames
        return self._show()

    def step(self, action: Array | None) -> StepResult:
        if action is None:
            assert self._policy is not None
            action = self._policy()
        verdict = self._simulator.step(action)
        success = self._checker.judge(self._simulator.state(), environment_verdict=verdict)
        return self._show(action, success)

    def _show(self, action: Array | None = None, success: bool = False) -> StepResult:
        frame = self._simulator.render() if self._is_drawn else np.empty((0, 0, 3), dtype=np.uint8)
        return StepResult(frame=frame, row=self._simulator.state(), action=action, success=success)
