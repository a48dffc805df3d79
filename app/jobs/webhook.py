"""Tells the URL that a caller gave for its job that the job has ended."""

from __future__ import annotations

import asyncio

import httpx
import msgspec
import structlog

from app.db.models import Job
from app.intake.addresses import Policy, Refused, Resolve, resolve
from app.jobs.ledger import Ledger
from app.jobs.reports import info_of
from app.problems import ProblemError

ATTEMPTS = 5
PAUSE_S = 2.0
TIMEOUT_S = 10.0

log = structlog.get_logger(__name__)


class Webhooks:
    """Goes where remote images may be fetched from, and nowhere else: see docs/images.md.

    The name is resolved once and the connection goes to an address that was checked.
    """

    def __init__(self, ledger: Ledger, policy: Policy, lookup: Resolve = resolve) -> None:
        self._ledger, self._policy, self._resolve = ledger, policy, lookup

    async def tell(self, job: Job) -> None:
        """POST the job as it is now; tried a few times, and given up with a line in the log."""
        if job.webhook is None:
            return
        row = await self._ledger.find(job.id, job.tenant)
        if row is None:
            return
        body = msgspec.json.encode(await info_of(self._ledger, row))
        for attempt in range(ATTEMPTS):
            try:
                await self._post(httpx.URL(job.webhook), body, job.id)
                return
            except (httpx.HTTPError, OSError, Refused) as error:
                log.warning("a webhook failed", job=job.id, attempt=attempt + 1, error=type(error).__name__)
            await asyncio.sleep(PAUSE_S * 2**attempt)

    async def _post(self, url: httpx.URL, body: bytes, job_id: str) -> None:
        host = url.raw_host.decode("ascii")
        self._policy.check_host(host.lower())
        addresses = await self._resolve(host, url.port or (443 if url.scheme == "https" else 80))
        for address in addresses:
            self._policy.check_address(address)
        if not addresses:
            raise Refused("this host has no address")
        async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_S) as client:
            answer = await client.post(
                url.copy_with(host=str(addresses[0])),
                content=body,
                headers={
                    "host": url.netloc.decode("ascii"),
                    "content-type": "application/json",
                    "idempotency-key": job_id,
                    "user-agent": "pointbox",
                },
                extensions={"sni_hostname": host},
            )
        answer.raise_for_status()


def check_webhook(text: str, policy: Policy) -> None:
    """Raises ProblemError for one that can never be told."""
    if policy.mode == "off":
        detail = "Webhooks are off on this server, as fetching remote images is."
        raise ProblemError("invalid-request", detail, field="webhook")
    try:
        url = httpx.URL(text)
        if url.scheme not in ("http", "https") or not url.host or url.userinfo:
            raise Refused("it must be an http or https URL without a user name")
        policy.check_host(url.raw_host.decode("ascii").lower())
    except (httpx.InvalidURL, Refused) as error:
        raise ProblemError(
            "invalid-request", f"The webhook cannot be used: {error}.", field="webhook"
        ) from None
