"""A label of this process that is unique beyond this machine, for names of temporary files."""

import hashlib
import os
import socket
from functools import cache
from pathlib import Path


def process_label() -> str:
    """`<pid>-<origin>`; the origin stands for the host, its boot and the namespace of process ids.

    Two machines or containers that share a folder have processes with the same ids, but other origins.
    """
    return f"{os.getpid()}-{origin()}"


@cache
def origin() -> str:
    """Six characters that processes share if each of them sees the process ids of the others."""
    facts = [socket.gethostname()]
    try:
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        facts.append(os.readlink("/proc/self/ns/pid"))  # noqa: PTH115 - the text counts
    except OSError:  # a platform without them, and without such namespaces
        pass
    return hashlib.blake2b("\n".join(facts).encode(), digest_size=3).hexdigest()
