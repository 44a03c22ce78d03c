"""One warm fork server with TensorFlow for all judges that start processes."""

from tests.strategies.conftest import warm

__all__ = ["warm"]
