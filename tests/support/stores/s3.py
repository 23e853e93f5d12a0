"""A local S3 server that a test can pause, kill and damage; it listens only on the loopback device."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.fs

BUCKET = "bucket"
SECRET = "marker-of-the-secret-key"
TIMEOUT_S = 120.0
SERVER_CODE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class S3:
    """A server with one bucket."""

    def __init__(self, port: int, process: "subprocess.Popen[str]") -> None:
        self.port = port
        self._process = process
        self.environment = {
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        }

    @property
    def uri(self) -> str:
        """URI of a folder in the bucket; environment variables hold the server's address."""
        return f"s3://{BUCKET}/some/folder"

    def pause(self) -> None:
        """Stop answering requests."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Answer requests again, with all objects intact."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the server, and with it all objects."""
        self._process.kill()
        self._process.wait()

    def files(self) -> list[str]:
        """Paths of all objects in the folder."""
        system, path = pyarrow.fs.FileSystem.from_uri(self.uri)
        selector = pyarrow.fs.FileSelector(path, recursive=True, allow_not_found=True)
        files = [file for file in system.get_file_info(selector) if file.is_file]
        return sorted(file.path.removeprefix(f"{path}/") for file in files)

    def damage(self, file: str) -> None:
        """Overwrite one of `files`."""
        system, path = pyarrow.fs.FileSystem.from_uri(self.uri)
        with system.open_output_stream(f"{path}/{file}") as stream:
            stream.write(b"damaged")


@contextmanager
def s3_server(log: Path) -> Iterator[S3]:
    """Run a server until the end of the block, with its address in the environment of this process."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER_CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        )
    lines = (process.stdout.readline() for _ in range(10))
    server = S3(next(int(line) for line in lines if line.strip().isdecimal()), process)
    previous_environment = {name: os.environ.get(name) for name in server.environment}
    os.environ.update(server.environment)
    try:
        system, _ = pyarrow.fs.FileSystem.from_uri(f"s3://{BUCKET}?allow_bucket_creation=true")
        deadline = time.monotonic() + TIMEOUT_S
        while not _create_bucket(system):
            assert time.monotonic() < deadline, "the server must answer"
        yield server
    finally:
        for name, value in previous_environment.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
        process.kill()
        process.communicate()


def _create_bucket(system: pyarrow.fs.FileSystem) -> bool:
    try:
        system.create_dir(BUCKET)
    except OSError:
        time.sleep(0.2)
        return False
    return True
