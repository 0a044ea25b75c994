"""Running one episode from a start to its goal."""

from __future__ import annotations

from goalward.tasks.spec import Policy, Protocol, Referee, Row, Simulator


def begin(simulator: Simulator, protocol: Protocol, start: Row, goal: Row) -> None:
    """Restore the start and, where the environment is the judge, give it the goal."""
    simulator.restore(start)
    if protocol.environments_own:
        simulator.set_goal(goal)


def run_episode(
    simulator: Simulator, protocol: Protocol, goal: Row, policy: Policy, budget: int
) -> int | None:
    """Let `policy` act until success or until the budget is spent.

    Returns:
        The number of steps to success, or None.
    """
    referee = Referee(protocol, goal)
    for step in range(1, budget + 1):
        verdict = simulator.step(policy())
        if referee.judge(simulator.row(), environment_verdict=verdict):
            return step
    return None
