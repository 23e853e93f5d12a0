"""Passwords are masked in standard error, for logging, tracebacks and threads."""

import logging
import sys
import threading
import traceback

import pytest

from orchestrator.errors import StoreError
from orchestrator.files.redact import redacted_stderr

MARKER = "Kx7Marker9Zq"
URL = f"http://ann:{MARKER}@host"


def log_exception() -> None:
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


def print_url() -> None:
    print("at", URL, file=sys.stderr)
    sys.stderr.writelines([URL, "\n"])


@pytest.mark.parametrize("write", [log_exception, raise_chained, print_url])
def test_password_is_masked_for_every_writer(write, capsys) -> None:
    with redacted_stderr():
        write()
    output = capsys.readouterr().err
    assert MARKER not in output
    assert "http://ann:***@host" in output


def test_traceback_of_a_thread_masks_the_password(capsys, monkeypatch) -> None:
    def fail() -> None:
        raise RuntimeError(URL)

    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    with redacted_stderr():
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
    output = capsys.readouterr().err
    assert "RuntimeError: http://ann:***@host" in output
    assert MARKER not in output


def test_masked_stream_otherwise_equals_standard_error(capsys) -> None:
    original = sys.stderr
    with redacted_stderr():
        assert sys.stderr.encoding == original.encoding
        assert not sys.stderr.isatty()
    assert sys.stderr is original
