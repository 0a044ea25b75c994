"""Controllers: the inverse dynamics models, how they are trained, and how they act."""
