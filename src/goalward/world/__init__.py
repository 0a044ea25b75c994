"""The world model: LeWM, its regularisers, training, quality figures and checkpoints."""
