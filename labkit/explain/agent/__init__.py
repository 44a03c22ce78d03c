"""What runs inside the user's processes: it needs nothing but the standard library.

`site/` is put on PYTHONPATH, so that every Python of the watched program loads `sitecustomize`,
which loads this folder under the name `labkit_agent`. It imports no framework; when the
program does, an import hook puts its marks into it.
"""
