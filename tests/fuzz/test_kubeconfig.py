"""Any file given as kubeconfig."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import trio
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from dev.fuzz.values import encoded, expanded, mangled, spoilt
from trio_npu_dra.kit.api.client import open_client
from trio_npu_dra.kit.api.credentials import Credentials
from trio_npu_dra.kit.api.kubeconfig import driver_credentials
from trio_npu_dra.kit.api.objects import Node
from trio_npu_dra.kit.api.transport import Transport
from trio_npu_dra.kit.base.errors import ConfigError, Unavailable

GOOD: Final[dict[str, Any]] = {
    "current-context": "here",
    "contexts": [{"name": "here", "context": {"cluster": "there", "user": "me"}}],
    "clusters": [
        {
            "name": "there",
            "cluster": {
                "server": "https://[::1]:6443/path",
                "certificate-authority": "ca.crt",
                "certificate-authority-data": "AAAA",
            },
        }
    ],
    "users": [
        {
            "name": "me",
            "user": {
                "token": "abc",
                "tokenFile": "token",
                "client-certificate": "a",
                "client-key-data": "AAAA",
            },
        }
    ],
}


def at(server: str, **user: Any) -> dict[str, Any]:
    """A kubeconfig with another server, and other fields of the user."""
    cluster = GOOD["clusters"][0]["cluster"] | {"server": server}
    users = [{"name": "me", "user": user}]
    return GOOD | {"clusters": [{"name": "there", "cluster": cluster}], "users": users}


PROXIED: Final = at("unix:///nobody/a")
WORDS: Final = (
    *("current-context", "clusters", "cluster", "server", "https://", "name", "users", "<<", "a"),
    *(": ", "- ", "\n", " ", ", ", "[", "]", "{", "}", "&a ", "*a", "? ", "| ", "> ", "'", '"'),
    *("\\", "!!timestamp ", "!!int ", "!!float ", "!!binary ", "!!set ", "!!omap ", "!!pairs "),
    *("!!bool ", "!!merge ", "!!null ", "!!str ", "!!python/object:os.system ", "!a "),
    *("%YAML 1.1", "---", "...", "2001-01-01", "12:30:45", "0x", "0b", "0", "1", "9" * 5000),
    *("_", ".", ".inf", "e9", "+", "\0"),
)
documents = (
    (spoilt(GOOD) | spoilt(PROXIED)).map(encoded)
    | st.just(yaml.safe_dump(GOOD).encode()).flatmap(mangled)
    | st.lists(st.sampled_from(WORDS), max_size=40).map(lambda words: "".join(words).encode())
    | st.binary(max_size=40)
)


@given(content=documents)
@example(
    content=encoded(at("https://a", **{"client-certificate": "\ud800\udc00", "client-key": "a"}))
)
@example(content=encoded(at("https://a", tokenFile="\0")))
@example(content=encoded(at("unix:///a", token="\ud800\udc00")))
@example(content=encoded(at("unix:///a\0b")))
@example(content=encoded(at("unix:///\ud800\udc00")))
@example(content=encoded(at("unix://" + "/a" * 100)))
@example(content=encoded(at("https://[")))
@example(content=encoded(at("https://a:99999")))
@example(content=encoded(at("https://\u2028")))
@example(content=b"!!bool")
@example(content=b"!!int ")
@example(content=b"!!timestamp ")
@example(content=b"2001-99-99")
@example(content=b"!!int " + b"9" * 5000)
@example(content=b"current-context: a\nclusters: &a [*a]")
@example(
    content=b"a: &a [0]\n"
    + b"".join(b"%c: &%c [%b]\n" % (c, c, b"*%c," % (c - 1) * 9) for c in b"bcdefghijk")
)
@example(content=b"[" * 200)
def test_any_file_is_credentials_or_one_error(place: Path, content: bytes) -> None:
    """The error names the file. Credentials can be used: a missing server is an outage."""
    path = place / "kubeconfig"
    path.write_bytes(expanded(content))
    try:
        credentials = driver_credentials(path)
    except ConfigError as error:
        words = str(error)
        assert str(path.parent) in words
        assert len(words.splitlines()) == 1
        assert len(words) < 1000 + 10 * len(content)
    else:
        assert Transport(credentials, deadline=1.0, user_agent="fuzz")._server.host
        if credentials.unix_socket is not None:
            trio.run(_ask_nobody, credentials)


async def _ask_nobody(credentials: Credentials) -> None:
    async with open_client(credentials, deadline=1.0) as client:
        with pytest.raises(Unavailable):
            await client.get(Node, "a")
