"""Notebooks open unchanged in `make lab`, whatever Python they were saved with.

JupyterLab writes the kernel's exact Python version into the metadata of a notebook when it opens
one, and marks it as changed where another version was saved. So the server hands out each notebook
with the version that is here.
"""

from typing import Any

from ipykernel.ipkernel import IPythonKernel
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager


class Contents(AsyncLargeFileManager):  # type: ignore[misc]
    """JupyterLab's usual files, with the metadata that the kernel of this environment has."""

    async def get(self, path: str, *arguments: Any, **options: Any) -> Any:
        """A file or folder as JupyterLab asks for it."""
        model = await super().get(path, *arguments, **options)
        if model["type"] == "notebook" and model["content"] is not None:
            metadata = model["content"]["metadata"]
            if metadata.get("kernelspec", {}).get("name") == "python3":
                metadata["language_info"] = dict(IPythonKernel.language_info)
        return model
