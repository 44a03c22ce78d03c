"""How an object of the course shows itself: by its table, as text and in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.views.table import Table


class ShownAsTable:
    """An object whose `table()` is what `print` and a cell show."""

    def table(self) -> Table:
        """Its caption, head, rows and footer."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return self.table()._repr_mimebundle_()
