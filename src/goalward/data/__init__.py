"""Episode files: writing, reading, collecting."""
