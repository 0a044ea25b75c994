"""Episode files: collecting, writing, reading, splitting, and cutting training windows."""
