"""Starts the agent in a Python of the watched program; hands on to the user's own sitecustomize."""

import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = os.environ.get("LABKIT_EXPLAIN")
sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != HERE]
if CONFIG:
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
        try:
            with open(os.path.join(os.path.dirname(CONFIG), "fault"), "w") as file:
                file.write("%s: %r" % (sys.version.split()[0], fault))
        except OSError:
            pass
own = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
if own is not None and own.loader is not None:
    sys.modules["sitecustomize"] = importlib.util.module_from_spec(own)
    own.loader.exec_module(sys.modules["sitecustomize"])
