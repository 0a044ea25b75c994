"""Evaluation: start and goal pairs, rollouts, results, statistics, latency, videos."""
