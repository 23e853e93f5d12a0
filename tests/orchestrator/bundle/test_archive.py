"""Archives are unpacked into their folder or refused: names, links, devices, bombs, lies about themselves."""

import os
import stat
import struct
import zipfile

import pytest

from orchestrator.bundle import archive
from orchestrator.errors import InputError
from tests.support.processes.commands import tree

FILES = {"plan.json": b"{}", "report/report.md": b"# x\n", "extensions/0/spec.yaml": b"name: x\n"}


@pytest.fixture
def place(tmp_path):
    (tmp_path / "inside").mkdir()
    return tmp_path


def made(place, *members):
    """An archive of (name or ZipInfo, content)."""
    file = place / "made.zip"
    with zipfile.ZipFile(file, "w") as opened:
        for name, content in members:
            opened.writestr(name, content)
    return file


def refused(file, place, why):
    before = {name: each for name, each in tree(place).items() if not name.startswith("inside")}
    with pytest.raises(InputError, match=why):
        archive.unpack(file, place / "inside")
    after = {name: each for name, each in tree(place).items() if not name.startswith("inside")}
    assert after == before, "nothing is written outside of the folder"
    assert not [path for path in (place / "inside").rglob("*") if path.is_symlink()]


def test_what_was_written_is_unpacked_and_equal_files_give_equal_bytes(place):
    archive.write(place / "one.zip", FILES)
    archive.write(place / "two.zip", dict(reversed(FILES.items())))
    assert (place / "one.zip").read_bytes() == (place / "two.zip").read_bytes()
    assert sorted(archive.unpack(place / "one.zip", place / "inside")) == sorted(FILES)
    assert {name: (place / "inside" / name).read_bytes() for name in FILES} == FILES


@pytest.mark.parametrize(
    "name",
    [
        "../evil.json",
        "report/../../evil.md",
        "/tmp/evil.json",
        "report/sub/evil.md",
        "extensions/../evil.json",
        "C:evil.json",
        "report\\..\\evil.md",
        "report/.evil",
        "plan.json/",
        "evil.py",
        "spec.yaml\nx",
        "spec.yaml\x00.py",
        "",
    ],
)
def test_a_name_that_we_do_not_write(place, name):
    member = zipfile.ZipInfo("x")
    member.filename = name
    refused(made(place, (member, b"evil")), place, "wrote: it ")


@pytest.mark.parametrize(
    "kind", [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK]
)
def test_a_link_a_device_a_pipe(place, kind):
    member = zipfile.ZipInfo("plan.json")
    member.external_attr = (kind | 0o777) << 16
    refused(made(place, (member, b"../../outside")), place, "'plan.json' must be a regular file")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_one_name_twice(place):
    refused(made(place, ("plan.json", b"1"), ("plan.json", b"2")), place, "'plan.json' twice")


def test_another_compression(place):
    member = zipfile.ZipInfo("plan.json")
    member.compress_type = zipfile.ZIP_LZMA
    refused(made(place, (member, b"1")), place, "has an unsupported compression method")


def test_encryption(place):
    file = made(place, ("plan.json", b"1"))
    content = bytearray(file.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    file.write_bytes(content)
    refused(file, place, "must be a regular file that every user may read")


def test_a_bomb_is_refused_by_what_it_says_and_by_what_comes_out(place, monkeypatch):
    monkeypatch.setattr(archive, "MAX_BYTES", 100_000)
    member = zipfile.ZipInfo("plan.json")
    member.compress_type = zipfile.ZIP_DEFLATED
    file = made(place, (member, b"\0" * 1_000_000))
    assert file.stat().st_size < 2000
    refused(file, place, "would need more than 100,000 bytes unpacked")
    assert not list((place / "inside").iterdir())
    content = bytearray(file.read_bytes())
    at = content.index(b"PK\x01\x02") + 24
    content[at : at + 4] = struct.pack("<I", 10)  # it says that it is small
    file.write_bytes(content)
    refused(file, place, "it cannot be read|would need more")
    assert sum(path.stat().st_size for path in (place / "inside").rglob("*")) <= 100_000


def test_a_small_archive_may_not_become_large(place, monkeypatch):
    monkeypatch.setattr(archive, "FREE_BYTES", 100_000)
    member = zipfile.ZipInfo("ledger.jsonl")
    member.compress_type = zipfile.ZIP_DEFLATED
    file = made(place, (member, b"\0" * 1_000_000))
    most = archive.most_unpacked(file.stat().st_size)
    assert 100_000 < most < 200_000
    refused(file, place, f"would need more than {most:,} bytes unpacked")
    assert not list((place / "inside").iterdir())
    content = bytearray(file.read_bytes())
    at = content.index(b"PK\x01\x02") + 24
    content[at : at + 4] = struct.pack("<I", 10)  # it says that it is small
    file.write_bytes(content)
    refused(file, place, "it cannot be read|would need more")
    assert sum(path.stat().st_size for path in (place / "inside").rglob("*")) <= most
    with pytest.raises(InputError, match="hand on the sweep's folder instead"):
        archive.write(place / "sweep.zip", {"ledger.jsonl": b"\0" * 1_000_000})
    assert not (place / "sweep.zip").exists()


def test_a_file_that_is_read_as_a_whole_is_no_bomb_either(place, monkeypatch):
    monkeypatch.setattr(archive, "MAX_FILE", 1000)
    file = made(place, ("ledger.jsonl", b"x" * 2000), ("plan.json", b"x" * 2000))
    refused(file, place, "'plan.json' has more than 1,000 bytes")
    assert not list((place / "inside").iterdir())
    content = bytearray(file.read_bytes())
    at = content.rindex(b"PK\x01\x02") + 24
    content[at : at + 4] = struct.pack("<I", 10)  # it says that it is small
    file.write_bytes(content)
    refused(file, place, "it cannot be read|has more than")
    assert (place / "inside" / "plan.json").stat().st_size <= 1000


def test_what_would_not_be_read_again_is_not_written(place, monkeypatch):
    monkeypatch.setattr(archive, "MAX_FILE", 1000)
    large = place / "large.json"
    large.write_bytes(b"x" * 1001)
    for content in (large, b"x" * 1001):
        with pytest.raises(
            InputError, match=r"report/report.json must have at most 1,000 bytes, or .* 1,001"
        ):
            archive.write(place / "sweep.zip", {"report/report.json": content, "ledger.jsonl": large})
    monkeypatch.setattr(archive, "MAX_BYTES", 1500)
    with pytest.raises(InputError, match=r"at most 2,000 files of 1,500 bytes together, got 2 of 1,601"):
        archive.write(place / "sweep.zip", {"plan.json": b"x" * 600, "ledger.jsonl": large})
    assert not (place / "sweep.zip").exists()


def test_a_device_or_a_link_in_the_place_of_an_archive_and_of_a_file_to_put_in(place):
    (place / "link.json").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="must be a file, and is a device"):
        archive.write(place / "made.zip", {"plan.json": place / "link.json"})
    assert not (place / "made.zip").exists()
    with pytest.raises(InputError, match="wrote: it is"):
        archive.unpack(place / "link.json", place / "inside")


def test_a_file_is_put_in_piece_by_piece(place):
    content = bytes(range(256)) * 20_000  # 5 MB
    (place / "big").write_bytes(content)
    archive.write(place / "one.zip", {**FILES, "ledger.jsonl": place / "big"})
    archive.write(place / "two.zip", {**FILES, "ledger.jsonl": content})
    assert (place / "one.zip").read_bytes() == (place / "two.zip").read_bytes()
    archive.unpack(place / "one.zip", place / "inside")
    assert (place / "inside" / "ledger.jsonl").read_bytes() == content


def test_too_many_files(place, monkeypatch):
    monkeypatch.setattr(archive, "MAX_FILES", 2)
    refused(made(place, *((f"report/{number}.md", b"") for number in range(3))), place, "it holds 3 files")


def test_a_list_of_files_that_is_too_long_is_not_read(place, monkeypatch):
    monkeypatch.setattr(archive, "MAX_DIRECTORY", 100)
    refused(
        made(place, *((f"report/{number}.md", b"") for number in range(3))),
        place,
        "list of files is too long",
    )


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"no archive at all, but long enough to be one", b"PK\x05\x06" + b"\xff" * 18]
)
def test_no_archive(place, content):
    file = place / "made.zip"
    file.write_bytes(content)
    refused(file, place, "must be an archive that `haltsweep bundle` wrote")


def test_what_follows_the_archive_or_makes_it_larger_than_it_says(place):
    file = made(place, ("plan.json", b"1"))
    whole = file.read_bytes()
    file.write_bytes(whole + b"more")
    refused(file, place, "it does not end as one")
    file.write_bytes(whole[:-22] + b"PK\x06\x07" + b"\0" * 16 + whole[-22:])
    refused(file, place, "it does not end as one")


def test_every_flipped_byte_is_refused_or_changes_no_file(place):
    file = place / "made.zip"
    archive.write(file, FILES)
    whole = file.read_bytes()
    for at in range(0, len(whole), 3):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        folder = place / "inside" / str(at)
        folder.mkdir()
        try:
            names = archive.unpack(file, folder)
        except InputError:
            continue
        assert all((folder / name).read_bytes() in FILES.values() for name in names)


def test_a_pipe_is_not_waited_for(place):
    os.mkfifo(place / "made.zip")
    with pytest.raises(InputError, match="it is a pipe"):
        archive.unpack(place / "made.zip", place / "inside")
