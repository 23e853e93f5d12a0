"""What a disk refuses, and what is said about it."""

import errno

import pytest

from orchestrator.files.disk_errors import FULL, disk_remedy, is_full, probe_folder
from tests.support.stores.disks import clear, fill, small_disk


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_room_is_told_in_one_way(number):
    error = OSError(number, "no")
    assert disk_remedy(error) == FULL
    assert is_full(error)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EROFS, "mounted read-only"),
        (errno.EACCES, "writable for this user"),
        (errno.EIO, "the disk fails"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EBUSY, "put that right"),
    ],
)
def test_every_refusal_has_its_remedy(number, expected):
    error = OSError(number, "no")
    assert expected in disk_remedy(error)
    assert not is_full(error)


def test_a_full_disk_is_found_by_trying(tmp_path):
    assert probe_folder(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    with small_disk(tmp_path / "small", 1 << 20) as disk:
        assert probe_folder(disk) is None
        fill(disk)
        found = probe_folder(disk)
        assert found is not None
        assert is_full(found)
        clear(disk)
        assert probe_folder(disk) is None


def test_a_folder_that_is_not_there_refuses_too(tmp_path):
    found = probe_folder(tmp_path / "none")
    assert found is not None
    assert found.errno == errno.ENOENT
