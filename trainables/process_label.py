"""A label for names of temporary files that is unique to this process across machines."""

import hashlib
import os
import socket
from functools import cache
from pathlib import Path


def process_label() -> str:
    """`<pid>-<origin>`; the origin stands for the host, its boot and the namespace of process ids.

    Machines or containers that share a folder may have equal process ids, but their origins differ.
    """
    return f"{os.getpid()}-{origin()}"


@cache
def origin() -> str:
    """Return six characters that are equal for processes of one process id namespace."""
    facts = [socket.gethostname()]
    try:
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        facts.append(os.readlink("/proc/self/ns/pid"))  # noqa: PTH115 - the text counts
    except OSError:  # platforms without process id namespaces
        pass
    return hashlib.blake2b("\n".join(facts).encode(), digest_size=3).hexdigest()
