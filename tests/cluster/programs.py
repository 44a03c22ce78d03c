"""Programs for ranks, in a module that loads nothing: each rank has to import it."""

import time


def waits(_rank):
    while True:
        time.sleep(1)
