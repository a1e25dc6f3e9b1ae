"""Log lines: one JSON object each for machines, one readable line each for a terminal.

Code logs a fixed message and puts what varies into `extra`, so that lines can be searched by
message and filtered by field.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, TextIO

from trio_npu_dra.kit.base.log_thread import ThreadedStream
from trio_npu_dra.kit.base.terminal import visible

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

_CHATTY = ("httpx", "httpcore", "hpack", "h2", "grpclib", "asyncio")


def configure(
    level: str, form: Literal["auto", "json", "text"], stream: TextIO | ThreadedStream | None = None
) -> None:
    """Send all log lines of the process to *stream* (standard error) in one form."""
    stream = stream or sys.stderr
    as_text = form == "text" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    formatter = TextFormatter() if as_text else JsonFormatter()
    handler.setFormatter(formatter)
    if isinstance(stream, ThreadedStream):
        stream.words = partial(_words_of_dropped, formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # One line a request would drown ours.
    for chatty in _CHATTY:
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _words_of_dropped(formatter: logging.Formatter, lines: int) -> str:
    fields = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING"}
    fields |= {"msg": "log lines were dropped because nobody read them", "lines": lines}
    return f"{formatter.format(logging.makeLogRecord(fields))}\n"


class JsonFormatter(logging.Formatter):
    """`{"time": ..., "level": ..., "logger": ..., "message": ..., <extra fields>}`."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one record as one JSON line."""
        line: dict[str, Any] = {
            "time": _time(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return visible(json.dumps(line, default=str, ensure_ascii=False))


class TextFormatter(logging.Formatter):
    """`12:00:00.123 info  claim prepared  claim=default/a devices=npu-0`."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one record as one line, with a traceback below it if there is one."""
        fields = " ".join(f"{key}={_plain(value)}" for key, value in _extra(record).items())
        clock = _time(record).strftime("%H:%M:%S.") + f"{int(record.msecs):03}"
        line = f"{clock} {record.levelname.lower():<7} {record.getMessage()}"
        lines = [f"{line}  {fields}" if fields else line]
        if record.exc_info:
            lines += self.formatException(record.exc_info).split("\n")
        return "\n".join(map(visible, lines))


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD_FIELDS}


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _plain(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value)
