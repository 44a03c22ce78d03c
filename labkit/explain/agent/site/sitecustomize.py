"""Starts the agent in a Python of the watched program; hands on to the user's own sitecustomize."""

import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
if os.environ.get("LABKIT_EXPLAIN"):
    try:
        folder = os.path.dirname(HERE)
        spec = importlib.util.spec_from_file_location(
            "labkit_agent",
            os.path.join(folder, "__init__.py"),
            submodule_search_locations=[folder],
        )
        if spec is not None and spec.loader is not None:
            package = importlib.util.module_from_spec(spec)
            sys.modules["labkit_agent"] = package
            spec.loader.exec_module(package)
            importlib.import_module("labkit_agent.imports")
    except Exception as fault:  # the program must run, whatever happens to the watcher
        sys.stderr.write("labkit explain: not watching: %r\n" % (fault,))
others = [place for place in sys.path if os.path.abspath(place or ".") != HERE]
own = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
if own is not None and own.loader is not None:
    own.loader.exec_module(importlib.util.module_from_spec(own))
