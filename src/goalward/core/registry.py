"""Names of objects: ours, those of installed packages, and a user's own."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from goalward.core.checks import format_value, one_line

Thing = TypeVar("Thing")


class Registry(Generic[Thing]):
    """Objects of one kind, by name.

    A name was registered at run time, is one of ours, or is an entry point of an installed
    package. Any other text may be a place: `package.module:ATTRIBUTE` or
    `path/to/file.py:ATTRIBUTE`. Ours are places, too, and load in the same way: at the first use.

    Args:
        kind: The word for such an object in messages, such as "task".
        ours: Places of the objects that come with goalward, by name.
        accepts: Whether an object is of this kind.
        also: Another registry, whose names are known here too.
    """

    def __init__(
        self,
        kind: str,
        ours: Mapping[str, str],
        accepts: Callable[[Any], bool],
        *,
        also: Registry[Any] | None = None,
    ) -> None:
        self._kind, self._ours, self._accepts, self._also = kind, dict(ours), accepts, also
        self._found: dict[str, Thing] = {}
        self._loaded: dict[str, Thing] = {}  # by place

    def __contains__(self, name: object) -> bool:
        return self._has(name) or (self._also is not None and name in self._also)

    def _has(self, name: object) -> bool:
        return name in self._found or name in self._places()

    def register(self, name: str, thing: Thing) -> None:
        """Give a name to an object; replaces an earlier object of this name."""
        if not name or not isinstance(name, str) or any(c in name for c in ":=, ") or "/" in name:
            raise ValueError(
                f"a {self._kind}'s name must be a string without spaces and without : = , / , "
                f"got {format_value(name)}"
            )
        self._found[name] = self._checked(thing, name)

    def get(self, name: str) -> Thing:
        """The object of a name or a place; an unknown name is refused with the nearest one."""
        text = name if isinstance(name, str) else ""
        if self._also is not None and text in self._also and not self._has(text):
            found: Thing = self._also.get(text)
            return found
        if text not in self._found:
            place = self._places().get(text, text if ":" in text else None)
            if place is None:
                raise ValueError(f"unknown {self._kind} {format_value(name)}; {self._offer(text)}")
            self._found[name] = self._loaded[place] = self._checked(_load(place), place)
        return self._found[name]

    def place_of(self, thing: Thing) -> str | None:
        """From where another process can load it; None if it was registered as an object."""
        return next((place for place, known in self._loaded.items() if known is thing), None)

    def names(self) -> tuple[str, ...]:
        """Every known name: ours first."""
        own = [*self._places(), *(name for name in self._found if ":" not in name)]
        return tuple(dict.fromkeys([*own, *(() if self._also is None else self._also.names())]))

    def _places(self) -> dict[str, str]:
        foreign = entry_points(group=f"goalward.{self._kind}s")
        return {**self._ours, **{p.name: p.value for p in foreign if p.name not in self._ours}}

    def _checked(self, thing: Any, where: str) -> Thing:
        if not self._accepts(thing):
            raise ValueError(f"{where} is no {self._kind}, but {format_value(thing)}")
        return thing

    def _offer(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.names(), n=1, cutoff=0.3)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return (
            f"{hint}known {self._kind}s: {', '.join(self.names())}; "
            "your own is package.module:NAME or path/to/file.py:NAME"
        )


def _load(place: str) -> Any:
    """The attribute that a place names; imports its module, which runs its code."""
    source, _, attribute = place.rpartition(":")
    try:
        load = _module_of_file if source.endswith(".py") else importlib.import_module
        found: Any = load(source)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{place} cannot be loaded: {one_line(str(error))}") from error
    return found


def _module_of_file(path: str) -> ModuleType:
    """The module of a user's file, as `import` would give it from the file's folder."""
    file = Path(path).resolve()
    if not file.is_file():
        raise ValueError(f"there is no file {path}")
    known = sys.modules.get(file.stem)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # so that worker processes and pickles find its classes
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[file.stem]
        raise
    return module
