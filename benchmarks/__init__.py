"""Speed comparisons: each prints rates, and their ratios, of one run."""
