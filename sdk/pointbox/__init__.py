"""The client of Pointbox: an image and a phrase become points and boxes.

from pointbox import Client

with Client() as client:
    for box in client.detect("street.jpg", "bicycle"):
        print(box.score, box.pixels)
"""

from pointbox.async_client import AsyncClient
from pointbox.calls import Model, Options
from pointbox.client import Client
from pointbox.errors import (
    APIError,
    CallTimeout,
    ConnectionFailed,
    DeadlineExceeded,
    Forbidden,
    IdempotencyInFlight,
    IdempotencyMismatch,
    ImageTooLarge,
    InternalError,
    InvalidImage,
    InvalidPhrase,
    InvalidRequest,
    InvalidResponse,
    NotFound,
    PointboxError,
    Problem,
    QueueFull,
    RateLimited,
    Unauthenticated,
    Unavailable,
    UnknownModel,
    UnsupportedMedia,
    UnsupportedTask,
    WorkerCrashed,
)
from pointbox.jobs import Job, JobFailure, JobOptions, JobPlace, JobProgress, JobRequest, JobResult
from pointbox.mapping import Outcome, Progress
from pointbox.pictures import ImageHandle, ImageSource
from pointbox.results import (
    Detection,
    DetectResult,
    ImageInfo,
    Metrics,
    PhraseResult,
    PixelBox,
    PixelPoint,
    Point,
    PointResult,
)
from pointbox.streams import AsyncStream, Stream
from pointbox.version import __version__

__all__ = [
    "APIError",
    "AsyncClient",
    "AsyncStream",
    "CallTimeout",
    "Client",
    "ConnectionFailed",
    "DeadlineExceeded",
    "DetectResult",
    "Detection",
    "Forbidden",
    "IdempotencyInFlight",
    "IdempotencyMismatch",
    "ImageHandle",
    "ImageInfo",
    "ImageSource",
    "ImageTooLarge",
    "InternalError",
    "InvalidImage",
    "InvalidPhrase",
    "InvalidRequest",
    "InvalidResponse",
    "Job",
    "JobFailure",
    "JobOptions",
    "JobPlace",
    "JobProgress",
    "JobRequest",
    "JobResult",
    "Metrics",
    "Model",
    "NotFound",
    "Options",
    "Outcome",
    "PhraseResult",
    "PixelBox",
    "PixelPoint",
    "Point",
    "PointResult",
    "PointboxError",
    "Problem",
    "Progress",
    "QueueFull",
    "RateLimited",
    "Stream",
    "Unauthenticated",
    "Unavailable",
    "UnknownModel",
    "UnsupportedMedia",
    "UnsupportedTask",
    "WorkerCrashed",
    "__version__",
]
