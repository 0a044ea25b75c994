"""Controllers on frozen latents: inverse dynamics models, how they are trained and how they act."""
