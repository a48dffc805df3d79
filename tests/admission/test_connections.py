"""The way to Redis: answers in order, limits, and what becomes of those who wait when it ends."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import subprocess

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from app.admission.connections import CONNECTIONS, REDIS_ERRORS, Producer, producer
from app.admission.embedded import Embedded
from app.admission.wire import Wire
from tests.admission.fakes import pings, until


class Server:
    """Answers whatever it reads with the next of `answers`; hangs up when there is none."""

    def __init__(self, *answers: bytes, tls: ssl.SSLContext | None = None) -> None:
        self.answers, self.tls = list(answers), tls
        self.connections = 0
        self.read = b""

    async def __aenter__(self) -> Server:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=self.tls)
        self.url = f"redis://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while data := await reader.read(65536):
            self.read += data
            if self.answers:
                writer.write(self.answers.pop(0))
            else:
                writer.close()
                return


@pytest.fixture
async def client(settings):
    client = producer(settings.redis_url)
    yield client
    await client.aclose()


async def test_commands_of_redis_py_give_what_it_promises(client):
    assert await client.set("wire:a", b"\x00\xff") is True
    assert await client.get("wire:a") == b"\x00\xff"
    assert await client.get("wire:none") is None
    assert await client.hset("wire:h", mapping={"n": 1, "x": 0.5}) == 2
    assert await client.hgetall("wire:h") == {b"n": b"1", b"x": b"0.5"}
    assert await client.zadd("wire:z", {"m": 2}) == 1
    assert await client.zscore("wire:z", "m") == 2.0
    assert await client.config_set("slowlog-max-len", 128) is True
    async with client.pipeline() as both:
        both.delete("wire:a", "wire:h")
        both.delete("wire:z")
        assert await both.execute() == [2, 1]


def test_it_runs_on_uvloop_as_well_as_on_asyncio(shared_server):
    """The service uses the one, the tests use the other."""

    async def ask() -> list[bytes]:
        client = producer(shared_server.url)
        values = await asyncio.gather(*(client.execute_command("ECHO", str(n)) for n in range(20)))
        await client.aclose()
        return values

    asyncio.run(until(lambda: pings(shared_server.url)))
    assert uvloop.run(ask()) == asyncio.run(ask()) == [str(n).encode() for n in range(20)]


async def test_errors_are_those_of_redis_py(client):
    with pytest.raises(NoScriptError):
        await client.evalsha("0" * 40, 0)
    with pytest.raises(ResponseError, match="unknown command"):
        await client.execute_command("NOSUCH")
    assert await client.ping()


async def test_many_at_once_share_a_few_connections(client):
    values = await asyncio.gather(*(client.execute_command("ECHO", str(n)) for n in range(200)))
    assert values == [str(n).encode() for n in range(200)]
    assert isinstance(client, Producer)
    assert len(client._wires) <= CONNECTIONS


async def test_whoever_goes_away_takes_no_answer_from_others(settings):
    wire = await Wire.open(settings.redis_url)
    first, second = wire.send(("ECHO", "1"), 5), wire.send(("ECHO", "2"), 5)
    first.cancel()
    assert await second == b"2"
    assert wire.load == 0
    wire.drop()


async def test_an_answer_in_pieces_is_one():
    async with Server(b"$5\r\nhe") as server:
        wire = await Wire.open(server.url)
        answer = wire.send(("GET", "x"), 5)
        await until(lambda: server.read)
        server.answers.append(b"llo\r\n:7\r\n")
        assert [await wire.send(("GET", "y"), 5), await answer] == [7, b"hello"]
        wire.drop()


async def test_what_is_not_answered_in_time_fails_and_what_is_behind_it_too():
    async with Server(b"") as server:
        wire = await Wire.open(server.url)
        answers = [wire.send(("GET", "x"), 0.1), wire.send(("GET", "y"), 60)]
        for answer in answers:
            with pytest.raises(RedisTimeoutError):
                await answer
        assert wire.closed
        with pytest.raises(RedisConnectionError):
            await wire.send(("GET", "z"), 5)


async def test_the_limit_counts_from_each_command(settings):
    wire = await Wire.open(settings.redis_url)
    for _ in range(4):
        assert await wire.send(("ECHO", "x"), 0.2) == b"x"
        await asyncio.sleep(0.1)
    wire.drop()


@pytest.mark.parametrize("answer", [None, b"nonsense\r\n"], ids=["closed", "no protocol"])
async def test_a_lost_connection_fails_all_and_is_replaced(answer):
    async with Server(*([answer] if answer else [])) as server:
        client = producer(server.url)
        results = await asyncio.gather(*(client.get("x") for _ in range(3)), return_exceptions=True)
        assert all(isinstance(result, RedisError) for result in results)
        server.answers += [b"$1\r\na\r\n"]
        assert await client.get("x") == b"a"
        assert server.connections > 1
        await client.aclose()


async def test_what_waits_fails_when_the_client_is_closed():
    async with Server(b"") as server:
        client = producer(server.url)
        waiting = asyncio.create_task(client.get("x"))
        await until(lambda: server.read)
        await client.aclose()
        with pytest.raises(RedisError):
            await waiting


async def test_nobody_there():
    client = producer("redis://127.0.0.1:1/0")
    results = await asyncio.gather(*(client.get("x") for _ in range(3)), return_exceptions=True)
    assert all(isinstance(result, REDIS_ERRORS) for result in results)
    await client.aclose()


async def test_those_who_wait_for_a_connection_share_it_though_one_goes_away(settings):
    client = producer(settings.redis_url)
    first, second = (asyncio.create_task(client.execute_command("ECHO", text)) for text in "ab")
    await asyncio.sleep(0)
    first.cancel()
    assert await second == b"b"
    assert len(client._wires) == 1
    await client.aclose()


async def test_many_wait_no_longer_than_one_for_somebody_who_does_not_answer(monkeypatch):
    monkeypatch.setattr("app.admission.wire.CONNECT_TIMEOUT_S", 0.2)
    async with Server(*[b""] * 100) as server:
        client = producer(server.url.replace("redis://", "redis://:secret@"))
        results = await asyncio.gather(*(client.get("x") for _ in range(50)), return_exceptions=True)
        assert all(isinstance(result, RedisTimeoutError) for result in results)
        assert server.connections == 1
        await client.aclose()


async def test_a_wrong_password_is_told(settings):
    place = settings.redis_url.partition("@")[2]
    client = producer(f"redis://:wrong@{place}")
    with pytest.raises(ResponseError, match="WRONGPASS"):
        await client.get("x")
    await client.aclose()


async def test_a_user_without_a_password_is_not_let_in_as_another(settings):
    client = producer(settings.redis_url.replace("redis://:", "redis://nobody:").replace(":@", "@"))
    with pytest.raises(ResponseError, match="WRONGPASS"):
        await client.get("x")
    await client.aclose()


@pytest.fixture
def unix_server(tmp_path):
    """A Valkey that can be reached by a socket in the file system only, as a user."""
    embedded, socket = Embedded(), tmp_path / "socket"
    lines = ("port 0", f"unixsocket {socket}", "user me on >secret ~* &* +@all")
    with subprocess.Popen(embedded.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        process.stdin.write(embedded.config + "\n".join(lines).encode())
        process.stdin.close()
        yield f"unix://me:secret@{socket}"
        process.kill()


async def test_a_unix_socket_with_a_user_and_a_database(unix_server):
    await until(lambda: pings(unix_server))
    third, zeroth = producer(f"{unix_server}?db=3"), producer(unix_server)
    assert await third.set("there", 1)
    assert (await third.get("there"), await zeroth.get("there")) == (b"1", None)
    await third.aclose()
    await zeroth.aclose()


async def test_tls_with_a_password(tmp_path):
    certificate = tmp_path / "localhost.pem"
    certificate.write_bytes(certificate_and_key())
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(certificate)
    async with Server(b"+OK\r\n", b"+OK\r\n", b"$1\r\na\r\n", tls=server_side) as server:
        url = server.url.replace("redis://127.0.0.1", "rediss://:secret@localhost").replace("/0", "/2")
        with pytest.raises(ssl.SSLCertVerificationError):
            await producer(url).get("x")
        client = producer(f"{url}?ssl_ca_certs={certificate}")
        assert await client.get("x") == b"a"
        await client.aclose()
    assert b"AUTH\r\n$6\r\nsecret" in server.read
    assert b"SELECT\r\n$1\r\n2" in server.read


def certificate_and_key() -> bytes:
    """A certificate for localhost that signs itself, and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    return certificate.public_bytes(pem) + key.private_bytes(pem, form, plain)
