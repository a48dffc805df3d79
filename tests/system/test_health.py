"""What probes see."""

from __future__ import annotations

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.system.controllers import HealthController


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_probes_may_leave_the_body_out(method: str) -> None:
    with TestClient(Litestar([HealthController])) as client:
        answer = client.request(method, "/livez")
    assert answer.status_code == 200
    assert bool(answer.content) is (method == "GET")
