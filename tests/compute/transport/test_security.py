"""Who may connect, listen, and where: a clear refusal each, and the server goes on."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.compute import channels
from headrace.compute.channels import FETCH, VERSION, ConnectionLimits
from headrace.compute.credentials import Security, Validity, is_loopback, read_validities
from headrace.compute.errors import ComputeError, ConnectionBroken, InsecureAddress, NotAuthorized
from headrace.compute.serve.controller_process import Options, run_controller
from headrace.compute.serve.replica_server import ReplicaOptions, run_replica
from headrace.errors import BadOption
from tests.compute.transport.fakes import PATIENCE, Served, answered, linked, raw_stream, run_link, served

trustme = pytest.importorskip("trustme", reason="trustme is not installed, which makes certificates")
_grpc: Any = grpc

TOKEN = "correct-horse"
QUICK = ConnectionLimits(connect=2.0)


class Authority:
    """A CA and what it signs."""

    def __init__(self) -> None:
        self._ca = trustme.CA()
        self.pem: bytes = self._ca.cert_pem.bytes()

    def security(self, *names: str, **more: Any) -> Security:
        """One side with a certificate of those names; it trusts this CA."""
        expires = more.pop("expires", None)
        dates = {} if expires is None else {"not_before": expires - timedelta(days=9), "not_after": expires}
        signed = self._ca.issue_cert(*names, **dates)
        chain = b"".join(blob.bytes() for blob in signed.cert_chain_pems)
        kept: dict[str, Any] = {"ca": self.pem, "certificate": chain, "key": signed.private_key_pem.bytes()}
        return Security(**(kept | more))

    def dated(self, host: str, start: datetime, end: datetime, organization: str) -> bytes:
        """The PEM of a certificate."""
        signed = self._ca.issue_cert(
            host, not_before=start, not_after=end, organization_name=organization or None
        )
        return signed.cert_chain_pems[0].bytes()


@pytest.fixture(scope="module")
def ours() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def theirs() -> Authority:
    return Authority()


def secret(path: Path, content: bytes, mode: int = 0o600) -> Path:
    """A file that its owner alone may read."""
    path.write_bytes(content)
    path.chmod(mode)
    return path


def story_of(server: Security, client: Security, good: Security | None = None) -> tuple[ComputeError, Served]:
    """The error of a client that connects; then a good one is served."""

    async def story() -> tuple[ComputeError, Served]:
        async with served(server) as running:
            controller, link = await run_link(running, client, QUICK)
            assert link.error is not None
            assert [*controller.unreached, *controller.failures] == [link.error]
            assert running.replica.received == []
            if good is not None:
                await running.check_alive(good)
            return link.error, running

    return asyncio.run(story())


# --- TLS ---------------------------------------------------------------------------


def test_both_sides_show_certificates_of_the_ca(ours: Authority) -> None:
    async def story() -> None:
        async with (
            served(ours.security("127.0.0.1")) as server,
            linked(server, ours.security("controller")) as (controller, _),
        ):
            assert await controller.peek() == answered(1)

    asyncio.run(story())


def test_a_server_of_another_ca_is_not_trusted(ours: Authority, theirs: Authority) -> None:
    error, _ = story_of(
        theirs.security("127.0.0.1"), ours.security("controller"), theirs.security("controller")
    )
    assert isinstance(error, NotAuthorized)
    assert "not to be trusted" in error.what


def test_a_client_of_another_ca_is_refused(ours: Authority, theirs: Authority) -> None:
    stranger = theirs.security("controller", ca=ours.pem)
    error, _ = story_of(ours.security("127.0.0.1"), stranger, ours.security("controller"))
    assert isinstance(error, ConnectionBroken | NotAuthorized)


def test_a_client_without_a_certificate_is_refused(ours: Authority) -> None:
    error, _ = story_of(ours.security("127.0.0.1"), Security(ca=ours.pem), ours.security("controller"))
    assert isinstance(error, ConnectionBroken | NotAuthorized)


def test_a_server_of_another_name_is_not_trusted(ours: Authority) -> None:
    server = ours.security("elsewhere.example")
    error, _ = story_of(
        server, ours.security("controller"), ours.security("controller", server_name="elsewhere.example")
    )
    assert isinstance(error, NotAuthorized)
    assert "not to be trusted" in error.what


def test_an_expired_certificate_is_not_trusted_on_either_side(ours: Authority) -> None:
    expired = datetime.now(UTC) - timedelta(days=1)
    error, _ = story_of(ours.security("127.0.0.1", expires=expired), ours.security("controller"))
    assert isinstance(error, NotAuthorized)
    assert "expired" in error.why
    error, _ = story_of(
        ours.security("127.0.0.1"),
        ours.security("controller", expires=expired),
        ours.security("controller"),
    )
    assert isinstance(error, ConnectionBroken | NotAuthorized)


def test_a_plain_client_of_a_server_with_tls_is_refused(ours: Authority) -> None:
    error, _ = story_of(ours.security("127.0.0.1"), Security(), ours.security("controller"))
    assert isinstance(error, ConnectionBroken)
    assert "TLS" in error.fix


def test_a_client_with_tls_of_a_plain_server_is_refused(ours: Authority) -> None:
    error, _ = story_of(Security(), ours.security("controller"), Security())
    assert isinstance(error, ConnectionBroken)
    assert "TLS" in error.fix


def test_only_clients_of_allowed_names_are_served(ours: Authority) -> None:
    server = ours.security("127.0.0.1", clients=("controller.example",))
    error, _ = story_of(server, ours.security("other.example"), ours.security("controller.example"))
    assert isinstance(error, NotAuthorized)
    assert "other.example" in error.what


# --- tokens ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "told"), [(None, "no token was given"), ("wrong", "the token is wrong"), ("größe", "wrong")]
)
def test_a_client_without_the_token_is_refused(token: str | None, told: str) -> None:
    if token == "größe":
        with pytest.raises(BadOption):
            Security.load(environment={"HEADRACE_TOKEN": token})
        return
    error, _ = story_of(Security(token=TOKEN), Security(token=token), Security(token=TOKEN))
    assert isinstance(error, NotAuthorized)
    assert told in error.what
    assert TOKEN not in str(error)


def test_a_token_over_tls_is_enough_beyond_this_machine(ours: Authority) -> None:
    server = ours.security("127.0.0.1", ca=None, token=TOKEN)
    server.check_listen("0.0.0.0:7411")
    good = Security(ca=ours.pem, token=TOKEN)
    error, _ = story_of(server, Security(ca=ours.pem), good)
    assert isinstance(error, NotAuthorized)


def test_stashes_are_only_for_those_who_may_connect() -> None:
    async def story() -> None:
        async with (
            served(Security(token=TOKEN)) as server,
            _grpc.aio.insecure_channel(server.address) as channel,
        ):
            # Refused before it has asked: what a stranger sends, which may be long, is not waited for.
            call = channel.stream_stream(FETCH)(metadata=(("x-headrace-protocol", VERSION),))
            with pytest.raises(_grpc.aio.AioRpcError) as refused:
                await asyncio.wait_for(call.read(), PATIENCE)
            error: Any = refused.value
            assert error.code() == _grpc.StatusCode.UNAUTHENTICATED

    asyncio.run(story())


@pytest.mark.parametrize("header", ["Bearer", "bearer correct-horse", "Bearer correct-horses", "Basic eDp5"])
def test_what_is_not_exactly_the_token_is_not_the_token(header: str) -> None:
    async def story() -> None:
        async with (
            served(Security(token=TOKEN)) as server,
            raw_stream(server, [("x-headrace-protocol", VERSION), ("authorization", header)]) as call,
        ):
            with pytest.raises(_grpc.aio.AioRpcError) as refused:
                await call.read()
            error: Any = refused.value
            assert error.code() == _grpc.StatusCode.UNAUTHENTICATED

    asyncio.run(story())


def test_secrets_are_not_shown(ours: Authority) -> None:
    shown = repr(ours.security("127.0.0.1", token=TOKEN))
    assert TOKEN not in shown
    assert "PRIVATE" not in shown


def test_a_token_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = secret(tmp_path / "token", b"from-the-file\n")
    assert Security.load(token_file=file, environment={"HEADRACE_TOKEN": "x"}).token == "from-the-file"
    # Both sides must read the same: space at the end would get lost on the way.
    assert Security.load(environment={"HEADRACE_TOKEN": " x\n"}).token == "x"
    assert Security.load(environment={"MINE": "x"}, token_variable="MINE").token == "x"
    assert Security.load(environment={"HEADRACE_TOKEN": ""}).token is None


@pytest.mark.parametrize(
    "load",
    [
        lambda folder: Security.load(token_file=folder / "none", environment={}),
        lambda folder: Security.load(token_file=folder / "empty", environment={}),
        lambda folder: Security.load(token_file=folder / "two lines", environment={}),
        lambda folder: Security.load(ca=folder / "none", environment={}),
        lambda folder: Security.load(certificate=folder / "empty", environment={}),
        lambda folder: Security.load(key=folder / "empty", environment={}),
    ],
)
def test_files_that_are_no_credentials_are_refused(tmp_path: Path, load: Callable[[Path], Security]) -> None:
    secret(tmp_path / "empty", b"")
    secret(tmp_path / "two lines", b"a\nb")
    with pytest.raises(BadOption):
        load(tmp_path)


@pytest.mark.parametrize("part", ["ca", "certificate"])
def test_credentials_of_the_caller_that_are_none_are_said_to_be(ours: Authority, part: str) -> None:
    bad: dict[str, Any] = {part: b"none"}
    error, _ = story_of(ours.security("127.0.0.1"), replace(ours.security("controller"), **bad))
    assert isinstance(error, NotAuthorized)
    assert "cannot be used" in error.what


def test_a_certificate_that_is_none_is_an_option_that_is_bad() -> None:
    async def story() -> None:
        async with served(Security(certificate=b"none", key=b"none")):
            pass

    with pytest.raises(BadOption, match="cannot be used"):
        asyncio.run(story())


def test_files_are_checked_to_be_certificates_and_to_belong_together(tmp_path: Path, ours: Authority) -> None:
    one, other = ours.security("a.example"), ours.security("b.example")
    for name, content in (("ca", one.ca), ("cert", one.certificate), ("key", one.key), ("other", other.key)):
        secret(tmp_path / name, content or b"")
    (tmp_path / "none").write_bytes(b"none")

    def load(*names: str) -> Security:
        ca, certificate, key = (tmp_path / name for name in names)
        return Security.load(ca=ca, certificate=certificate, key=key, environment={})

    assert load("ca", "cert", "key") == one
    for wrong in (("none", "cert", "key"), ("ca", "none", "key"), ("ca", "cert", "other")):
        with pytest.raises(BadOption, match="cannot be used"):
            load(*wrong)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o606, 0o660, 0o644])
@pytest.mark.parametrize("option", ["token_file", "key"])
def test_a_secret_that_others_may_read_is_refused(
    tmp_path: Path, ours: Authority, option: str, mode: int
) -> None:
    side = ours.security("a.example")
    given: dict[str, Any] = {
        "certificate": secret(tmp_path / "certificate.pem", side.certificate or b"", 0o644),
        "key": secret(tmp_path / "key.pem", side.key or b""),
        "token_file": secret(tmp_path / "token", b"x"),
    }
    assert Security.load(**given, environment={}).token == "x"
    given[option].chmod(mode)
    with pytest.raises(BadOption, match="others may read or write the secret") as error:
        Security.load(**given, environment={})
    assert error.value.fix == f"chmod 600 {given[option]}"


# --- when certificates are valid ----------------------------------------------------


def loaded(folder: Path, side: Security, now: datetime) -> Security:
    files: dict[str, Any] = {}
    for name in ("ca", "certificate", "key"):
        files[name] = secret(folder / f"{name}.pem", getattr(side, name))
    return Security.load(**files, environment={}, clock=now.timestamp)


def test_a_certificate_that_is_not_valid_now_is_refused(tmp_path: Path, ours: Authority) -> None:
    end = datetime(2030, 1, 10, tzinfo=UTC)
    side = ours.security("a.example", expires=end)
    second = timedelta(seconds=1)
    for good in (end - timedelta(days=9), end):
        assert loaded(tmp_path, side, good) == side
    with pytest.raises(BadOption, match=r"certificate.pem expired on 2030-01-10 00:00:00 UTC"):
        loaded(tmp_path, side, end + second)
    with pytest.raises(BadOption, match=r"certificate.pem is not valid before 2030-01-01 00:00:00 UTC"):
        loaded(tmp_path, side, end - timedelta(days=9) - second)


def test_an_issuer_in_the_chain_and_the_authorities_must_be_valid_too(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    ours, old = Authority(), Authority()
    root = old.security("root.example", expires=now - timedelta(days=1)).certificate
    side = ours.security("a.example", expires=now + timedelta(days=1))
    chained = replace(side, certificate=(side.certificate or b"") + (root or b""))
    with pytest.raises(BadOption, match=r"an issuer in the certificate .* expired on"):
        loaded(tmp_path, chained, now)
    # Of several authorities some may be old: they are not asked.
    assert loaded(tmp_path, replace(side, ca=ours.pem + (root or b"")), now).certificate == side.certificate
    with pytest.raises(BadOption, match=r"the CA .*ca.pem expired on"):
        loaded(tmp_path, replace(side, ca=root), now)


def test_a_process_does_not_start_with_an_expired_certificate_and_warns_of_its_end(
    tmp_path: Path, ours: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    end = datetime(2030, 1, 30, tzinfo=UTC)
    side = Security(certificate=ours.dated("a.example", end - timedelta(days=90), end, ""))
    side.check_certificate((end - timedelta(days=14)).timestamp)
    Security().check_certificate()
    assert caplog.messages == []
    side.check_certificate((end - timedelta(days=14) + timedelta(seconds=1)).timestamp)
    side.check_certificate((end - timedelta(hours=30)).timestamp)
    assert caplog.messages == [
        f"warning: the certificate expires on 2030-01-30 00:00:00 UTC, in {left}; "
        "a new one is read at the next start"
        for left in ("13 days", "30 hours")
    ]
    with pytest.raises(BadOption, match="the certificate expired on"):
        side.check_certificate((end + timedelta(seconds=1)).timestamp)
    expired = ours.security("127.0.0.1", expires=datetime.now(UTC) - timedelta(days=1))
    for serve in (
        run_controller(Options("127.0.0.1:0", tmp_path / "controller", clients=expired), pytest.fail),
        run_replica(ReplicaOptions("127.0.0.1:0", tmp_path / "replica", security=expired), pytest.fail),
    ):
        with pytest.raises(BadOption, match="the certificate expired on"):
            asyncio.run(serve)
    assert list(tmp_path.iterdir()) == []


MOMENTS = st.datetimes(datetime(1950, 1, 2), datetime(2149, 12, 31), timezones=st.just(UTC)).map(
    lambda moment: moment.replace(microsecond=0)
)


@given(
    MOMENTS,
    MOMENTS,
    st.text(max_size=40),
    st.text(st.characters(codec="ascii", categories=["L"]), min_size=1),
)
@example(datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(2050, 1, 1, tzinfo=UTC), "", "a")
def test_the_dates_are_those_of_the_certificate(
    ours: Authority, one: datetime, other: datetime, organization: str, host: str
) -> None:
    start, end = min(one, other), max(one, other)
    assert read_validities(ours.dated(host, start, end, organization)) == [Validity(start, end)]


@pytest.mark.parametrize(
    "content", [b"", b"\x30", b"\x30\x03\x02\x01\x05", b"\x30\x84\xff\xff\xff\xff", b"\x31\x00"]
)
def test_what_is_no_certificate_is_said(content: bytes) -> None:
    with pytest.raises(BadOption, match="the dates of a certificate cannot be read"):
        read_validities(ssl.DER_cert_to_PEM_cert(content).encode())


# --- addresses ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:1", "127.8.9.1:1", "[::1]:1", "localhost:1", "unix:/run/x", "unix:x", "unix-abstract:x"],
)
def test_addresses_of_this_machine(address: str) -> None:
    assert is_loopback(address)
    Security().check_listen(address)
    Security(token=TOKEN).target(address)


@pytest.mark.parametrize(
    "address", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[fe80::1%eth0]:1", "[::ffff:8.8.8.8]:1", "192.0.2.1:1"]
)
def test_addresses_beyond_this_machine_need_credentials(address: str, ours: Authority) -> None:
    assert not is_loopback(address)
    tls = ours.security("127.0.0.1")
    for weak in (
        Security(),
        Security(token=TOKEN),
        Security(ca=ours.pem),
        Security(certificate=tls.certificate, key=tls.key),
    ):
        with pytest.raises(InsecureAddress):
            weak.check_listen(address)
    for plain in (Security(), Security(token=TOKEN)):
        with pytest.raises(InsecureAddress):
            plain.target(address)
    tls.check_listen(address)
    Security(ca=ours.pem).target(address)


def test_a_name_is_of_this_machine_only_if_all_that_it_means_is(monkeypatch: pytest.MonkeyPatch) -> None:
    meant = {
        "mixed": ["127.0.0.1", "10.0.0.1"],
        "here": ["127.0.0.1", "::1"],
        "there": ["192.0.2.7"],
    }

    def look_up(host: str, *_: Any, **__: Any) -> Any:
        if host not in meant:
            raise OSError("unknown")
        return [(0, 0, 0, "", (found, 0)) for found in meant[host]]

    monkeypatch.setattr(channels.socket, "getaddrinfo", look_up)
    assert is_loopback("here:1")
    assert not is_loopback("mixed:1")
    assert not is_loopback("there:1")
    with pytest.raises(ConnectionBroken):
        is_loopback("nowhere:1")
    assert Security(token=TOKEN).target("here:1") == "ipv6:[::1]:1,[::ffff:127.0.0.1]:1"
    assert Security(token=TOKEN).target("127.0.0.1:1") == "127.0.0.1:1"


def test_a_name_is_looked_up_once_and_what_it_means_later_does_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up: list[str] = []

    def look_up(host: str, *_: Any, **__: Any) -> Any:
        looked_up.append(host)
        return [(0, 0, 0, "", (found, 0)) for found in ("127.0.0.1", "::1")]

    async def story() -> None:
        async with served() as server:
            monkeypatch.setattr(channels.socket, "getaddrinfo", look_up)
            # A name that nobody else knows: who looked it up again would not find it.
            named = f"replica.invalid:{server.address.rpartition(':')[2]}"
            async with linked(named) as (controller, _):
                assert await controller.peek() == answered(1)
        assert looked_up == ["replica.invalid"]

    asyncio.run(story())


@pytest.mark.parametrize("address", ["", "host", ":1", "host:", "host:x", "host:99999", "host:-1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(BadOption):
        is_loopback(address)


def test_nobody_listens_or_connects_beyond_this_machine_without_credentials() -> None:
    async def story() -> None:
        with pytest.raises(InsecureAddress):
            async with served(address="0.0.0.0:0"):
                pass
        controller, link = await run_link("192.0.2.1:7411")
        assert isinstance(link.error, InsecureAddress)
        assert controller.unreached == [link.error]

    asyncio.run(story())


def test_an_address_that_is_taken_is_said_to_be() -> None:
    async def story() -> None:
        async with served() as server:
            with pytest.raises(ConnectionBroken, match="is in use"):
                async with served(address=server.address):
                    pass
            await server.check_alive()

    asyncio.run(story())


def test_a_replica_may_listen_at_a_socket_in_the_file_system(tmp_path: Path) -> None:
    async def story() -> None:
        address = f"unix:{tmp_path}/replica.sock"
        async with served(address=address) as server:
            assert server.address == address
            await server.check_alive()

    asyncio.run(story())
