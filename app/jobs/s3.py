"""A bucket: boto3 lists and names errors, obstore moves the bytes of ordinary keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import boto3
import obstore
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.store import S3Store as Transfer

from app.jobs.errors import JobError, NoSuchKey, StoreAway
from app.jobs.names import inside
from app.jobs.stores import Entry, Store

CONNECT_S, READ_S = 5, 60
_PLAIN = re.compile(r"(?!\.{1,2}(/|$))[A-Za-z0-9_.=-]+(/(?!\.{1,2}(/|$))[A-Za-z0-9_.=-]+)*")
"""Keys that obstore passes on unchanged; it folds or refuses some of the others."""
_CREDENTIALS = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "AuthorizationHeaderMalformed",
}
_MISSING = {"NoSuchKey", "404"}
MAX_KEY_BYTES = 1024
"""Of a key with its prefix, in every S3."""


class S3Store:
    """The objects of a bucket under a prefix; keys begin after the prefix.

    Args:
        endpoint: of servers that are not AWS; None: what AWS_ENDPOINT_URL says, or AWS.
        path_style: the bucket in the path and not in the host name.
        allow_http: whether an endpoint without TLS is meant.
        access_key, secret_key: None: boto3's usual places (environment, profile, machine).

    Raises:
        JobError: the endpoint is no URL, or plain http and that was not asked for.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        path_style: bool = False,
        allow_http: bool = False,
        access_key: str | None = None,
        secret_key: str | None = None,
        region: str | None = None,
    ) -> None:
        self.url = f"s3://{bucket}/{prefix}"
        self._bucket, self._prefix = bucket, prefix
        session = boto3.Session(access_key, secret_key, region_name=region)
        self._region = session.region_name or "us-east-1"  # AWS needs one; other servers take any
        style = {"addressing_style": "path" if path_style else "auto"}
        config = Config(
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
            retries={"mode": "standard", "max_attempts": 2},
            s3=style,
            max_pool_connections=32,
        )
        try:
            self._client = session.client("s3", self._region, endpoint_url=endpoint, config=config)
        except (BotoCoreError, ValueError) as error:
            raise JobError(f"{self.url} cannot be reached like this: {error}") from error
        self._where = str(self._client.meta.endpoint_url)
        if self._where.startswith("http://") and not allow_http:
            raise JobError(
                f"{self._where} is not https: say --s3-allow-http if that is meant, "
                'in POINTBOX_STORES "allow_http": true'
            )
        self._transfer = self._fast(session, path_style, allow_http)

    def within(self, name: str) -> Store:
        inner = copy(self)
        inner._prefix, inner.url = f"{self._prefix}{name}/", f"{self.url}{name}/"
        return inner

    def list(self) -> Iterator[Entry]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix
        )
        walk = iter(pages)
        while (page := self._call(lambda: next(walk, None), "list")) is not None:
            for found in page.get("Contents", ()):
                key = found["Key"][len(self._prefix) :]
                if found["Size"] or (key and not key.endswith("/")):
                    yield Entry(key, found["ETag"].strip('"'), found["Size"])

    def get(self, key: str) -> tuple[bytes, str]:
        whole = self._whole(key)
        if self._transfer is not None and _PLAIN.fullmatch(whole):
            try:
                answer = obstore.get(self._transfer, whole)
                return bytes(answer.bytes()), str(answer.meta["e_tag"] or "").strip('"')
            except (obstore.exceptions.BaseError, OSError):
                pass  # boto3 says what is wrong

        def read() -> tuple[bytes, str]:
            answer = self._client.get_object(Bucket=self._bucket, Key=whole)
            return answer["Body"].read(), answer["ETag"].strip('"')

        content: tuple[bytes, str] = self._call(read, "read")
        return content

    def read(self, key: str, start: int, size: int) -> bytes:
        whole, piece = self._prefix + key, f"bytes={start}-{start + size - 1}"

        def read() -> bytes:
            answer = self._client.get_object(Bucket=self._bucket, Key=whole, Range=piece)
            content: bytes = answer["Body"].read()
            return content

        content: bytes = self._call(read, "read")
        return content

    def size(self, key: str) -> int:
        whole = self._whole(key)
        head = self._call(lambda: self._client.head_object(Bucket=self._bucket, Key=whole), "read")
        return int(head["ContentLength"])

    def put(self, key: str, data: bytes | Path) -> None:
        whole = self._whole(key)
        if isinstance(data, Path):
            self._call(lambda: self._client.upload_file(str(data), self._bucket, whole), "write to")
        else:
            self._call(lambda: self._client.put_object(Bucket=self._bucket, Key=whole, Body=data), "write to")

    def _whole(self, key: str) -> str:
        """With the prefix.  Raises NoSuchKey: servers that fold `..` away would lead out of the prefix."""
        if key or not self._prefix:
            inside(key)
        whole = self._prefix + key
        if len(whole.encode()) > MAX_KEY_BYTES:
            raise NoSuchKey(f"a name has at most {MAX_KEY_BYTES} bytes with its prefix")
        return whole

    def _fast(self, session: boto3.Session, path_style: bool, allow_http: bool) -> Transfer | None:
        """None without credentials: boto3 tells that at the first call."""
        if session.get_credentials() is None:
            return None
        return Transfer(
            self._bucket,
            endpoint=self._where,
            region=self._region,
            virtual_hosted_style_request=not path_style and "amazonaws.com" in self._where,
            credential_provider=Boto3CredentialProvider(session),
            client_options={
                "allow_http": allow_http,
                "connect_timeout": f"{CONNECT_S}s",
                "timeout": f"{READ_S}s",
            },
            retry_config={"max_retries": 1},
        )

    def _call(self, call: Any, doing: str) -> Any:
        """Raises what `Store` promises."""
        from boto3.exceptions import S3UploadFailedError

        try:
            return call()
        except ClientError as error:
            raise self._explained(error, doing) from error
        except S3UploadFailedError as error:
            cause = error.__context__
            raise (
                self._explained(cause, doing) if isinstance(cause, ClientError) else StoreAway(str(error))
            ) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise JobError(
                f"no credentials for {self.url}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            ) from error
        except (BotoCoreError, OSError) as error:
            raise StoreAway(f"{self._where} does not answer: {error}") from error

    def _explained(self, error: ClientError, doing: str) -> Exception:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code == "NoSuchBucket":
            return JobError(f"there is no bucket {self._bucket!r} at {self._where}")
        if code in _CREDENTIALS:
            return JobError(f"{self._where} refuses the credentials for {self.url}: {code}")
        if code in _MISSING and doing == "read":
            return NoSuchKey("there is no such object")
        if status >= 500 or status == 429 or code in ("SlowDown", "RequestTimeout"):
            return StoreAway(f"{self._where} answered {status} {code}")
        if doing == "read":
            return NoSuchKey(f"it cannot be read: {code}")
        return JobError(f"{self._where} does not let this caller {doing} {self.url}: {code}")
