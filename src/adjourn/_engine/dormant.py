"""Dormant frames: stored images whose places the program has not reached yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import msgspec

from adjourn.errors import CheckpointCorrupt

from .address import segment_text
from .record import GraphImage, Image, Tree, join

T = TypeVar("T")

Taken: TypeAlias = tuple[str, Image, "dict[str, list[Any]] | None"]
"""The path of a frame that is not dormant any more, its image, and its channels if it is a graph's."""

_NOTHING: Mapping[str, Image] = MappingProxyType({})


class Dormant(dict[str, dict[str, Image]]):
    """The images of a loaded session whose places the program has not reached yet, by parent and segment.

    What a program never reaches stays here and is written into the next full record, so nothing is lost. `pieces` are
    the channels of dormant graphs, still encoded as they were stored.
    """

    # A dict, since every step asks whether there are any: with a custom `__bool__` that would be a call.
    __slots__ = ("_taken", "pieces")

    def __init__(self) -> None:
        super().__init__()
        self.pieces: dict[str, dict[str, list[Any]]] = {}
        self._taken: list[Taken] | None = None
        """What has been taken out since the outermost `reopen` began, so that what is opened inside is noted once."""

    def restore(self, tree: Tree) -> None:
        """Take in the frames of a folded session."""
        self.pieces = tree.pieces
        self._put(tree.frames)

    def _put(self, frames: Mapping[str, Image]) -> None:
        for path, image in frames.items():
            parent, _, segment = path.rpartition(";")
            if not segment:
                raise CheckpointCorrupt(f"'{path}' is not the path of a frame")
            self.setdefault(parent, {})[segment] = image

    def below(self, path: str) -> Mapping[str, Image]:
        """Return the dormant frames directly below `path`, by segment."""
        return self.get(path, _NOTHING)

    def at(self, path: str) -> Image | None:
        """Return the dormant frame at `path`, if there is one."""
        parent, _, segment = path.rpartition(";")
        return self.below(parent).get(segment)

    def bind(self, parent: str, segment: str) -> Image | None:
        """Hand out a dormant frame, to be bound."""
        siblings = self.get(parent)
        if siblings is None:
            return None
        image = siblings.pop(segment, None)
        if not siblings:
            del self[parent]
        if self._taken is not None and image is not None:
            path = _path(parent, segment)
            self._taken.append((path, image, self.pieces.get(path)))
        return image

    def reopen(self, parent: str, segment: str, open: Callable[[Image | None], T]) -> T:
        """Bind a dormant frame, with those below it, by opening it; `open` gets None if there is none.

        What cannot be opened stays dormant: the program has changed, and may be changed back.
        """
        if segment not in self.below(parent):
            return open(None)
        taken, is_outermost = ([], True) if self._taken is None else (self._taken, False)
        self._taken, begun = taken, len(taken)
        try:
            return open(self.bind(parent, segment))
        except BaseException:
            for path, image, pieces in taken[begun:]:
                self._put({path: image})
                if pieces is not None:
                    self.pieces[path] = pieces
            del taken[begun:]
            raise
        finally:
            if is_outermost:
                self._taken = None

    def everything(self) -> Iterator[tuple[str, Image]]:
        """Yield every dormant frame with its path, wherever it is."""
        for parent, siblings in self.items():
            for segment, image in siblings.items():
                yield _path(parent, segment), image

    def all_below(self, path: str) -> Iterator[tuple[str, Image]]:
        """Yield every dormant frame below `path`, parents first."""
        # A stack of its own: in generators inside one another, each frame would pass through all those above it.
        todo = self._listed(path)
        while todo:
            below, image = todo.pop()
            yield below, image
            if isinstance(image, GraphImage) and image.finished:
                # Routings are below the node that they lead away from, which has ended.
                for name in reversed(image.finished):
                    todo += self._listed(f"{below};{segment_text('node', name)}")
            todo += self._listed(below)

    def _listed(self, path: str) -> list[tuple[str, Image]]:
        """Return the frames directly below `path` with their paths, the first one last."""
        return [(_path(path, segment), image) for segment, image in reversed(list(self.below(path).items()))]

    def snapshot(self, path: str) -> Iterator[tuple[str, Image]]:
        """Yield every dormant frame below `path` as a full record needs it: with its channels, kept separately."""
        for below, image in self.all_below(path):
            pieces = self.pieces.get(below)
            if pieces and isinstance(image, GraphImage):
                whole = {name: msgspec.Raw(join(parts)) for name, parts in pieces.items()}
                yield below, msgspec.structs.replace(image, set=whole)
            else:
                yield below, image

    def forget_below(self, path: str) -> list[tuple[str, Image]]:
        """Drop the dormant frames below `path`, and return them: their parent has ended."""
        forgotten = list(self.all_below(path))
        for below, image in forgotten:
            pieces = self.pieces.pop(below, None)
            self.pop(below, None)
            if self._taken is not None:
                self._taken.append((below, image, pieces))
        self.pop(path, None)
        return forgotten


def _path(parent: str, segment: str) -> str:
    return f"{parent};{segment}" if parent else segment
