"""Collects the parts of a document while it is parsed."""

from __future__ import annotations

from service.text.markup.document import Block, Document, Item, TextRun
from service.text.markup.navigation import parts_of


class DocumentBuilder:
    """Collects the parts of a document in order: items until a block ends their run.

    Args:
        has_controls: whether names of elements are those of HTML, or of Markdown's links.
    """

    def __init__(self, *, has_controls: bool) -> None:
        self._has_controls = has_controls
        self._parts: Document = []
        self._items: list[Item] = []

    def add(self, item: Item) -> None:
        """Add an item to the current run."""
        if item.raw:
            self._items.append(item)

    def block(self, raw: str) -> None:
        """End the run, and add a block."""
        self._end_run()
        if raw:
            self._parts.append(Block(raw))

    def finish(self) -> Document:
        """The document."""
        self._end_run()
        return self._parts

    def _end_run(self) -> None:
        if not self._items:
            return
        run = TextRun(self._items)
        if not run.has_text:
            self._parts.append(Block(run.raw))
        else:
            self._parts += parts_of(self._items) if self._has_controls else [run]
        self._items = []
