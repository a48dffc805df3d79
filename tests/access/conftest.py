"""The fixtures of the queue and of the database, for tests that need a Redis, a worker or tables."""

from tests.admission.conftest import client, redis, settings, shared_server, start_work
from tests.db.conftest import database, postgres_url

__all__ = ["client", "database", "postgres_url", "redis", "settings", "shared_server", "start_work"]
