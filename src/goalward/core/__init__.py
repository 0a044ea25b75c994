"""What everything stands on: configurations, artifacts, the training loop, registry, console."""
