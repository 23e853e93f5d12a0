"""Errors of a disk and the advice for each."""

import errno

import pytest

from orchestrator.files.disk_errors import FULL, disk_remedy, probe_folder
from tests.support.stores.disks import clear, fill, small_disk


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_errors_of_a_full_disk_have_the_same_advice(number):
    assert disk_remedy(OSError(number, "no")) == FULL


@pytest.mark.parametrize(("number", "expected"), [(errno.EROFS, "read-only"), (errno.EMFILE, "ulimit -n")])
def test_every_disk_error_has_its_advice(number, expected):
    assert expected in disk_remedy(OSError(number, "no"))


def test_probe_detects_a_full_disk(tmp_path):
    assert probe_folder(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    with small_disk(tmp_path / "small", 1 << 20) as disk:
        assert probe_folder(disk) is None
        fill(disk)
        assert disk_remedy(probe_folder(disk)) == FULL
        clear(disk)
        assert probe_folder(disk) is None
