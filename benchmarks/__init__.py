"""Benchmarks that print ratios from one run."""
