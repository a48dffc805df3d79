"""The client says and reads what the service reads and says: a field that one gains, the other must."""

from __future__ import annotations

import pytest
from msgspec import Struct
from msgspec.structs import fields

import pointbox
from app import problems
from app.admission.messages import WorkerModel
from app.images.schemas import UploadedImage
from app.jobs import records
from app.jobs import schemas as jobs
from app.spatial import schemas
from pointbox import Options
from pointbox.errors import KINDS

OF_THE_CLIENT_ITSELF = {"image", "image_url", "image_id", "object", "objects", "stream"}
NOT_OFFERED = {"units", "settings", "reasoning"}
"""Pixels are a property of the results; the others are Moondream's."""


def names(kind: type[Struct]) -> set[str]:
    return {field.name for field in fields(kind)}


def test_every_option_of_the_service_is_one_of_the_client() -> None:
    assert set(Options.__annotations__) == names(schemas.SpatialBody) - OF_THE_CLIENT_ITSELF - NOT_OFFERED


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (pointbox.DetectResult, schemas.DetectAnswer),
        (pointbox.PointResult, schemas.PointAnswer),
        (pointbox.Detection, schemas.Box),
        (pointbox.Point, schemas.Point),
        (pointbox.PhraseResult, schemas.PhraseInfo),
        (pointbox.ImageInfo, schemas.ImageInfo),
        (pointbox.Metrics, schemas.Metrics),
        (pointbox.Problem, problems.Problem),
        (pointbox.Job, jobs.JobInfo),
        (pointbox.JobProgress, jobs.JobProgress),
        (pointbox.JobRequest, jobs.JobRequest),
        (pointbox.JobPlace, jobs.SourcePlace),
        (pointbox.JobResult, records.Result),
        (pointbox.JobFailure, records.Trouble),
    ],
)
def test_every_field_of_an_answer_is_read(ours: type[Struct], theirs: type[Struct]) -> None:
    assert names(ours) - {"image_width", "image_height"} == names(theirs)


def test_what_is_told_of_images_and_models() -> None:
    assert names(pointbox.ImageHandle) <= names(UploadedImage)
    assert names(pointbox.Model) <= names(WorkerModel)


def test_every_option_of_a_job() -> None:
    places = {"source", "out", "objects"}
    assert set(pointbox.JobOptions.__annotations__) - {"manifest"} == names(jobs.JobRequest) - places


def test_every_problem_is_an_exception() -> None:
    assert set(KINDS) == set(problems.KINDS)
