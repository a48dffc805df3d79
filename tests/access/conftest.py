"""The queue's fixtures, for tests that need a Redis or a worker."""

from tests.admission.conftest import client, redis, settings, shared_server, start_work

__all__ = ["client", "redis", "settings", "shared_server", "start_work"]
