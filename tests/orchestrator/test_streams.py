"""What anybody writes to standard error bears no password: logging, tracebacks, threads."""

import logging
import sys
import threading
import traceback

import pytest

from orchestrator.errors import StoreError
from orchestrator.files.redact import redacted_stderr

MARKER = "Kx7Marker9Zq"
URL = f"http://ann:{MARKER}@host"


def log() -> None:
    logger = logging.getLogger("another library")
    handler = logging.StreamHandler()
    logger.addHandler(handler)
    try:
        {}[URL]
    except KeyError:
        logger.exception("no connection to %s", URL)
    finally:
        logger.removeHandler(handler)


def raise_chained() -> None:
    try:
        try:
            {}[URL]
        except KeyError as error:
            raise StoreError(f"cannot reach {URL}") from error
    except StoreError:
        traceback.print_exc()


def print_it() -> None:
    print("at", URL, file=sys.stderr)
    sys.stderr.writelines([URL, "\n"])


@pytest.mark.parametrize("write", [log, raise_chained, print_it])
def test_whoever_writes(write, capsys) -> None:
    with redacted_stderr():
        write()
    output = capsys.readouterr().err
    assert MARKER not in output
    assert "http://ann:***@host" in output


def test_a_thread_that_dies(capsys, monkeypatch) -> None:
    def die() -> None:
        raise RuntimeError(URL)

    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    with redacted_stderr():
        thread = threading.Thread(target=die)
        thread.start()
        thread.join()
    output = capsys.readouterr().err
    assert "RuntimeError: http://ann:***@host" in output
    assert MARKER not in output


def test_it_is_the_stream_in_all_else(capsys) -> None:
    before = sys.stderr
    with redacted_stderr():
        assert sys.stderr.encoding == before.encoding
        assert not sys.stderr.isatty()
    assert sys.stderr is before
