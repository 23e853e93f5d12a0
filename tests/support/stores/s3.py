"""A local S3 server that fails when a test says so; loopback only."""

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
PATIENCE_S = 120.0
SERVE = """
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
        """A folder in the bucket; where the server is says the environment."""
        return f"s3://{BUCKET}/some/folder"

    def pause(self) -> None:
        """It answers nobody."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """It answers again, and has forgotten nothing."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """It is gone, with all that it held."""
        self._process.kill()
        self._process.wait()

    def files(self) -> list[str]:
        """Paths of all objects in the folder."""
        system, path = pyarrow.fs.FileSystem.from_uri(self.uri)
        selector = pyarrow.fs.FileSelector(path, recursive=True, allow_not_found=True)
        found = [each for each in system.get_file_info(selector) if each.is_file]
        return sorted(each.path.removeprefix(f"{path}/") for each in found)

    def damage(self, file: str) -> None:
        """Other bytes under the same name, one of `files`."""
        system, path = pyarrow.fs.FileSystem.from_uri(self.uri)
        with system.open_output_stream(f"{path}/{file}") as stream:
            stream.write(b"damaged")


@contextmanager
def s3_server(log: Path) -> Iterator[S3]:
    """A server that ends with the block; its environment is that of this process meanwhile."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        )
    assert process.stdout is not None
    lines = (process.stdout.readline() for _ in range(10))
    server = S3(next(int(line) for line in lines if line.strip().isdecimal()), process)
    before = {name: os.environ.get(name) for name in server.environment}
    os.environ.update(server.environment)
    try:
        system, _ = pyarrow.fs.FileSystem.from_uri(f"s3://{BUCKET}?allow_bucket_creation=true")
        until = time.monotonic() + PATIENCE_S
        while not _made(system):
            assert time.monotonic() < until, "the server must answer"
        yield server
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
        process.kill()
        process.communicate()


def _made(system: pyarrow.fs.FileSystem) -> bool:
    try:
        system.create_dir(BUCKET)
    except OSError:
        time.sleep(0.2)
        return False
    return True
