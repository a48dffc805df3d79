"""Sends jobs that have ended to the URLs that their callers gave, beside whatever else a worker does."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections import Counter

import httpx
import msgspec
import structlog

from app.db.models import Job
from app.intake.addresses import Policy, Refused, Resolve, resolve
from app.jobs.ledger import OPEN, Ledger
from app.jobs.loops import again_and_again
from app.jobs.outbox import Outbox
from app.jobs.reports import info_of
from app.problems import ProblemError

ATTEMPT_S = 10.0
"""For everything together: the name, the connection, and the head of the answer, whose body is not read."""
AT_ONCE, OF_ONE_TENANT = 8, 2
"""Attempts of a process: a tenant's slow receivers hold up that tenant's own webhooks."""
MAX_LABEL, MAX_HOST = 63, 253
"""Characters of a part of a host name, and of all of it, in DNS."""

log = structlog.get_logger(__name__)


class Webhooks:
    """Goes where remote images may be fetched from, and nowhere else: see docs/images.md.

    The name is resolved once and the connection goes to an address that was checked.
    """

    def __init__(self, outbox: Outbox, ledger: Ledger, policy: Policy, lookup: Resolve = resolve) -> None:
        self._outbox, self._ledger, self._policy, self._resolve = outbox, ledger, policy, lookup
        self._owner = secrets.token_hex(8)
        self._certificates: ssl.SSLContext | None = None
        self._attempts: dict[asyncio.Task[None], str] = {}
        """Under way, with their tenants."""

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; attempts that are under way then are made again by another process."""
        try:
            await again_and_again("webhooks", self._next, stop)
        finally:
            for attempt in self._attempts:
                attempt.cancel()
            await asyncio.gather(*self._attempts, return_exceptions=True)

    async def _next(self) -> bool:
        """Begin an attempt; whether there was one to begin."""
        if len(self._attempts) >= AT_ONCE:
            return False
        of_tenant = Counter(self._attempts.values())
        job = await self._outbox.take(
            self._owner, [tenant for tenant, count in of_tenant.items() if count >= OF_ONE_TENANT]
        )
        if job is None:
            return False
        attempt = asyncio.create_task(self._attempt(job), name=f"webhook of {job.id}")
        self._attempts[attempt] = job.tenant
        attempt.add_done_callback(self._attempts.pop)
        return True

    async def _attempt(self, job: Job) -> None:
        """Whatever happens is the outcome of this webhook, and of no other."""
        status = None
        try:
            async with asyncio.timeout(ATTEMPT_S):
                status = await self._post(job)
            error = "" if 200 <= status < 300 else f"the server there answered with status {status}"
        except Refused as refused:
            error = str(refused)
        except TimeoutError:
            error = f"the server there did not answer within {ATTEMPT_S:g} seconds"
        except UnicodeError:
            error = "the host name cannot be looked up"
        except (httpx.HTTPError, httpx.InvalidURL, OSError):
            error = "the server there could not be reached, or broke off"
        except Exception:
            log.exception("a webhook could not be tried", job=job.id)
            error = "this server could not try it; its log says why"
        try:
            if not error and status is not None:
                await self._outbox.delivered(job, self._owner, status)
                return
            log.warning("a webhook failed", job=job.id, attempt=job.webhook_attempts, error=error)
            await self._outbox.failed(job, self._owner, status, error)
        except Exception:  # the database is away: the attempt is made again, as it is still pending there
            log.exception("the outcome of a webhook could not be kept", job=job.id)

    async def _post(self, job: Job) -> int:
        """The status of the answer.  Raises Refused, and what httpx and the resolver raise."""
        row = await self._ledger.find(job.id, job.tenant)
        if row is None or row.state in OPEN or row.webhook is None:
            raise Refused("the job has not ended any more")
        body = msgspec.json.encode(await info_of(self._ledger, row))
        url = httpx.URL(row.webhook)
        host = url.raw_host.decode("ascii")
        self._policy.check_host(host.lower())
        addresses = await self._resolve(host, url.port or (443 if url.scheme == "https" else 80))
        for address in addresses:
            self._policy.check_address(address)
        if not addresses:
            raise Refused("this host has no address")
        self._certificates = self._certificates or httpx.create_ssl_context()
        client = httpx.AsyncClient(trust_env=False, verify=self._certificates, timeout=ATTEMPT_S)
        sending = client.stream(
            "POST",
            url.copy_with(host=str(addresses[0])),
            content=body,
            headers={
                "host": url.netloc.decode("ascii"),
                "content-type": "application/json",
                "idempotency-key": _message(row),
                "user-agent": "pointbox",
            },
            extensions={"sni_hostname": host},
        )
        async with client, sending as answer:  # leaving the block hangs up on an answer without end
            return answer.status_code


def check_webhook(text: str, policy: Policy) -> None:
    """Raises ProblemError for one that can never be told."""
    if policy.mode == "off":
        detail = "Webhooks are off on this server, as fetching remote images is."
        raise ProblemError("invalid-request", detail, field="webhook")
    try:
        url = httpx.URL(text)
        host = url.raw_host.decode("ascii").lower()
        if url.scheme not in ("http", "https") or not host or url.userinfo:
            raise Refused("it must be an http or https URL without a user name")
        if (url.port or 0) > 65535:
            raise Refused("it names no port that there is")
        labels = host.removesuffix(".").split(".")
        if len(host) > MAX_HOST or not all(0 < len(label) <= MAX_LABEL for label in labels):
            raise Refused(f"each part of a host name has 1 to {MAX_LABEL} characters")
        policy.check_host(host)
    except (httpx.InvalidURL, Refused, ValueError) as error:  # ValueError: brackets that do not match
        raise ProblemError(
            "invalid-request", f"The webhook cannot be used: {error}.", field="webhook"
        ) from None


def _message(job: Job) -> str:
    """The same for every attempt, another one when a job was resumed and ends again."""
    ended = 0 if job.ended_at is None else round(1000 * job.ended_at.timestamp())
    return f"{job.id}-{ended}"
