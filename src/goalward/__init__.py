"""goalward: turn a frozen latent world model into a controller that needs no search."""

__version__ = "0.1.0"
