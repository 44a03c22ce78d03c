"""How an object of the course shows itself: by its table, as text and in a notebook."""

from typing import Any


class ShownAsTable:
    """An object whose `table()` is what `print` and a cell show."""

    def table(self) -> Any:
        """Its caption, head, rows and footer, as a `Table` of views."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        shown: dict[str, str] = self.table()._repr_mimebundle_()
        return shown
