"""The world model: LeWM, its training, validation, checkpoints and latents; other encoders."""
