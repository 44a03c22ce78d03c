"""Notebooks open unchanged in `make lab`, whatever Python they were saved with.

JupyterLab writes the kernel's exact Python version into the metadata of a notebook when it opens
one, and marks it as changed where another version was saved. So the server hands out each notebook
with the version that is here, and the map of the course in the first lecture with the progress of
today. What this server writes there is trusted; all else stays as the reader has trusted it.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

from ipykernel.ipkernel import IPythonKernel
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

from labkit.exercises.course import course
from labkit.kinds import LabError

MAP = "labkit.course()"


class Contents(AsyncLargeFileManager):  # type: ignore[misc]
    """JupyterLab's usual files, with the metadata that the kernel of this environment has."""

    async def get(self, path: str, *arguments: Any, **options: Any) -> Any:
        """A file or folder as JupyterLab asks for it."""
        model = await super().get(path, *arguments, **options)
        if model["type"] == "notebook" and model["content"] is not None:
            metadata = model["content"]["metadata"]
            if metadata.get("kernelspec", {}).get("name") == "python3":
                metadata["language_info"] = dict(IPythonKernel.language_info)
            for cell in model["content"]["cells"]:
                if cell["cell_type"] == "code" and cell["source"].endswith(MAP):
                    with suppress(LabError):  # a copy in a folder without the course
                        await self._fill(cell, Path(self.root_dir, path.strip("/")).parent)
        return model

    async def _fill(self, cell: Any, folder: Path) -> None:
        data = (await asyncio.to_thread(course, folder))._repr_mimebundle_()
        cell["outputs"] = [{"output_type": "display_data", "data": data, "metadata": {}}]
        cell["metadata"]["trusted"] = True
