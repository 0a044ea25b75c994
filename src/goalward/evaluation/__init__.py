"""Start and goal pairs, rollouts and floors."""
