"""The commands, a group a module: the fields of a dataclass are the flags of a command."""
