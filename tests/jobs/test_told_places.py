"""Callers hear of stores by their names: no path, bucket or address of the server is told."""

from __future__ import annotations

import json

import pytest

from app.jobs.named import Stores

STORES = Stores.read(
    json.dumps(
        {
            "pets": {
                "url": "s3://hidden/base",
                "endpoint": "http://10.0.0.9:9000/",
                "allow_http": True,
                "path_style": True,
            },
            "in": {"url": "/srv/pictures"},
            "more": {"url": "/srv/pictures-more/"},
            "all": {"url": "/"},
        }
    )
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("there is no image in /srv/pictures", "there is no image in in"),
        ("/srv/pictures/a/b.txt cannot be written: No space", "in/a/b.txt cannot be written: No space"),
        ("x is gone from /srv/pictures-more/j: start", "x is gone from more/j: start"),
        ("/mnt/srv/pictures is another", "/mnt/srv/pictures is another"),
        ("plan.json in s3://hidden/base/x/ is damaged", "plan.json in pets/x/ is damaged"),
        (
            "there is no bucket 'hidden' at http://10.0.0.9:9000",
            "there is no bucket of pets at the server of pets",
        ),
        (
            'http://10.0.0.9:9000/ does not answer: Could not connect to "http://10.0.0.9:9000/hidden?list-type=2"',
            'the server of pets does not answer: Could not connect to "the server of pets"',
        ),
        ("https://s3.amazonaws.com answered 503 SlowDown", "the server answered 503 SlowDown"),
        ("the phrase is too long", "the phrase is too long"),
    ],
)
def test_stores_by_their_names(text: str, told: str) -> None:
    assert STORES.in_names(text) == told
