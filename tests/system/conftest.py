"""The queue's fixtures."""

from tests.admission.conftest import client, redis, settings, shared_server, start_work

__all__ = ["client", "redis", "settings", "shared_server", "start_work"]
