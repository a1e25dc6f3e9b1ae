"""The API server without a network in between, for tests in which hours pass on a virtual clock."""

import json
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import trio

from trio_npu_dra.kit.api.answers import refusal
from trio_npu_dra.kit.api.bodies import OBJECT_LIMIT
from trio_npu_dra.kit.api.transport import JSON, Transport
from trio_npu_dra.kit.base.errors import Unavailable
from trio_npu_dra.lab.standins.api_state import KINDS, ApiState
from trio_npu_dra.lab.standins.api_status import ApiRefusal

_VERBS = {"POST": "create", "PUT": "update", "DELETE": "delete"}


class Call:
    """A request on an object without namespace, taken apart."""

    def __init__(self, method: str, target: str) -> None:
        url = urlsplit(target)
        self.query = dict(parse_qsl(url.query))
        *_, parent, last = url.path.split("/")
        self.plural, self.name = (last, "") if last in KINDS else (parent, last)
        self.selector = self.query.get("fieldSelector", "")
        reading = "watch" if "watch" in self.query else "get" if self.name else "list"
        self.verb = "dry-run" if "dryRun" in self.query else _VERBS.get(method, reading)


class Reach(Transport):
    """Answers at once, or not at all while it is away.

    Attributes:
        state: What the API server stores.
        asked: How many requests came, by verb or `dry-run`, also those that had no answer.
        deleted: The preconditions of each delete.
        lag: Seconds after which a watch opens, and shows a change.
    """

    def __init__(self, state: ApiState) -> None:
        self.asked: Counter[str] = Counter()
        self.deleted: list[dict[str, str]] = []
        self.lag = 0.0
        self.state = state
        self._left: trio.Event | None = None  # while it is away
        self._leaves = trio.Event()

    def leave(self) -> None:
        """Break open watches and refuse connections."""
        self._left = self._leaves
        self._leaves.set()

    def come_back(self) -> None:
        """Answer again."""
        self._left, self._leaves = None, trio.Event()

    async def ask(
        self,
        asked: str,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        limit: int = OBJECT_LIMIT,
        accept: bytes = JSON,
    ) -> bytes:
        """One request."""
        assert accept == JSON
        call = await self._call(asked, method, path)
        try:
            answer = json.dumps(self._answer(call, json.loads(body or b"{}"))).encode()
        except ApiRefusal as error:
            raise refusal(asked, error.code, json.dumps(error.to_wire()).encode()) from None
        assert len(answer) <= limit
        return answer

    async def stream(self, asked: str, path: str, *, seconds: float) -> AsyncGenerator[bytes, None]:
        """A watch; it ends as the API server ends it, when its time is over."""
        call = await self._call(asked, "GET", path)
        ends = trio.current_time() + float(call.query["timeoutSeconds"])
        assert ends < trio.current_time() + seconds
        version = int(call.query["resourceVersion"])
        await trio.sleep(self.lag)
        yield b""
        while (events := await self._events(asked, call, version, ends)) is not None:
            await trio.sleep(self.lag)
            for event in events:
                version = int(event["object"]["metadata"].get("resourceVersion", version))
                yield json.dumps(event).encode()

    def close(self) -> None:
        """Nothing to close."""

    async def _call(self, asked: str, method: str, path: str) -> Call:
        await trio.lowlevel.checkpoint()
        call = Call(method, path)
        self.asked[call.verb] += 1
        if self._left is not None:
            raise Unavailable(f"{asked}: connection refused")
        return call

    def _answer(self, call: Call, body: dict[str, Any]) -> dict[str, Any]:
        if (fault := self.state.take_fault(call.verb)) and fault.status:
            raise ApiRefusal(fault.status, "", "injected status")
        match call.verb:
            case "get":
                return self.state.get(call.plural, "", call.name)
            case "list":
                return self.state.list(call.plural, call.selector)
            case "create" | "dry-run":
                return self.state.create(call.plural, body, dry_run=call.verb == "dry-run")
            case "update":
                return self.state.update(call.plural, body)
        self.deleted.append(body["preconditions"])
        return self.state.delete(call.plural, "", call.name, body["preconditions"])

    async def _events(
        self, asked: str, call: Call, version: int, ends: float
    ) -> list[dict[str, Any]] | None:
        events = None
        with trio.move_on_at(ends):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when, self._leaves, nursery.cancel_scope)
                try:
                    events = list(await self.state.changes(call.plural, call.selector, version))
                except ApiRefusal as error:
                    events = [{"type": "ERROR", "object": error.to_wire() | {"metadata": {}}}]
                nursery.cancel_scope.cancel()
        if self._left is not None:
            raise Unavailable(f"{asked}: connection reset")
        return events


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
