"""Whatever the schema allows, and much that it does not, is answered as the schema says."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import ignored_auth, negative_data_rejection, positive_data_acceptance

from app.openapi import EXAMPLE_IMAGE
from app.server import create_app
from app.settings import Settings
from tests.app.running import Service

DOCUMENT = msgspec.json.encode(
    create_app(Settings(redis_url="redis://127.0.0.1:1")).openapi_schema.to_schema()
)
schema = schemathesis.openapi.from_dict(msgspec.json.decode(DOCUMENT))
QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


ASKING = schema.include(path=["/v1/detect", "/v1/point", "/v1/images"])


def send(case: Any, service: Service, *without: Any) -> None:
    """No fault, no status, content type or body that the schema does not have, no nonsense accepted.

    That everything the schema allows is accepted is not asked: it cannot say which strings are images.
    """
    case.call_and_validate(
        base_url=service.url, timeout=120, excluded_checks=[positive_data_acceptance, ignored_auth, *without]
    )


def mend(case: Any) -> None:
    """Gives a request of any fields an image and a phrase, so that most of them reach a worker."""
    if case.media_type == "application/json" and isinstance(case.body, dict):
        case.query = None
        case.body = {name: value for name, value in case.body.items() if not name.startswith("image")}
        case.body["image"] = EXAMPLE_IMAGE
        case.body.pop("timeout_s", None)  # of less than a millisecond, say
        if case.path != "/v1/images" and "objects" not in case.body:
            case.body["object"] = "red circle"
    elif case.media_type == "image/*":
        case.body = base64.b64decode(EXAMPLE_IMAGE.partition(",")[2])


@schema.parametrize()
@settings(max_examples=10, deadline=None, suppress_health_check=QUIET)
def test_requests_made_from_the_schema(case: Any, service: Service) -> None:
    send(case, service)


@ASKING.parametrize()
@settings(max_examples=10, deadline=None, suppress_health_check=QUIET)
def test_requests_that_have_an_image(case: Any, service: Service) -> None:
    mend(case)
    send(case, service, negative_data_rejection)  # which wrongs are left is not known


def test_a_stream_is_as_the_schema_says(service: Service) -> None:
    """With an object in it: most random requests find nothing."""
    body = {"image": EXAMPLE_IMAGE, "object": "red circle", "stream": True}
    send(schema["/v1/detect"]["POST"].Case(body=body, media_type="application/json"), service)


@pytest.mark.long
@schema.parametrize()
@settings(max_examples=500, deadline=None, suppress_health_check=QUIET)
def test_many_requests_made_from_the_schema(case: Any, service: Service) -> None:
    send(case, service)


@pytest.mark.long
@ASKING.parametrize()
@settings(max_examples=200, deadline=None, suppress_health_check=QUIET)
def test_many_requests_that_have_an_image(case: Any, service: Service) -> None:
    mend(case)
    send(case, service, negative_data_rejection)  # which wrongs are left is not known
