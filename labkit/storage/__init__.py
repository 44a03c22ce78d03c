"""A disk with a rate that the course sets, and the page cache of the real one."""

from labkit.storage.page_cache import cached, evict
from labkit.storage.throttled import Disk, disk

__all__ = ["Disk", "cached", "disk", "evict"]
