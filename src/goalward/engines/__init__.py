"""Where work runs: worker processes of this machine, or of a cluster."""
