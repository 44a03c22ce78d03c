"""Notebooks open unchanged in `make lab`, whatever Python they were saved with.

JupyterLab writes the kernel's exact Python version into the metadata of a notebook when it opens
one, and marks it as changed where another version was saved. So the server hands out each notebook
with the version that is here, and the map of the course in the first lecture with the progress of
today. What this server writes there is trusted; all else stays as the reader has trusted it.

An exported page asks the network for nothing, its formulas are MathML: in `labkit lab`, and by
`jupyter nbconvert --to html --HTMLExporter.preprocessors=labkit.contents.Offline FILE`.
"""

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from ipykernel.ipkernel import IPythonKernel
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from nbconvert.preprocessors import Preprocessor

from labkit import kernel
from labkit.exercises.course import course
from labkit.kinds import LabError

MAP = "labkit.course()"
# Code first, so that a dollar in it is none of a formula.
FORMULA = re.compile(r"```.*?```|`[^`]+`|\$\$(.+?)\$\$|(?<!\\)\$([^$\n]+?)(?<!\\)\$", re.DOTALL)


class Contents(AsyncLargeFileManager):  # type: ignore[misc]
    """JupyterLab's usual files, with the metadata that the kernel of this environment has."""

    async def get(self, path: str, *arguments: Any, **options: Any) -> Any:
        """A file or folder as JupyterLab asks for it."""
        torch = kernel.SPEC["name"]
        model = await super().get(path, *arguments, **options)
        if model["type"] == "notebook" and model["content"] is not None:
            metadata = model["content"]["metadata"]
            if (name := metadata.get("kernelspec", {}).get("name")) in ("python3", torch):
                metadata["language_info"] = dict(IPythonKernel.language_info)
                if name == torch:
                    metadata["language_info"]["version"] = kernel.python_version("torch")
            for cell in model["content"]["cells"]:
                if cell["cell_type"] == "code" and cell["source"].endswith(MAP):
                    # Without the course, or beside a damaged notebook, it stays as it was.
                    with suppress(LabError, OSError, ValueError):
                        await self._fill(cell, Path(self.root_dir, path.strip("/")).parent)
        return model

    async def _fill(self, cell: Any, folder: Path) -> None:
        data = (await asyncio.to_thread(course, folder))._repr_mimebundle_()
        cell["outputs"] = [{"output_type": "display_data", "data": data, "metadata": {}}]
        cell["metadata"]["trusted"] = True


class Offline(Preprocessor):
    """What nbconvert does with a notebook before it makes a page of it."""

    def preprocess(self, nb: Any, resources: Any) -> Any:
        """Formulas as MathML, and no scripts from elsewhere."""
        for cell in nb.cells:
            if cell.cell_type == "markdown":
                cell.source = FORMULA.sub(_mathml, cell.source)
        resources.update(mathjax_url="", require_js_url="")
        return nb, resources


def _mathml(found: re.Match[str]) -> str:
    from latex2mathml.converter import convert

    block, inline = found.groups()
    if not (block or inline):
        return found[0]
    math = str(convert(block or inline, display="block" if block else "inline"))
    return math.replace("*", "&#42;").replace("_", "&#95;")  # which Markdown would read
