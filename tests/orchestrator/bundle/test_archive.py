"""Archives are unpacked inside their folder or refused: names, links, devices, oversized contents."""

import stat
import struct
import zipfile

import pytest

from orchestrator.bundle import archive
from orchestrator.errors import InputError
from tests.support.processes.commands import tree

FILES = {"plan.json": b"{}", "report/report.md": b"# x\n", "extensions/0/spec.yaml": b"name: x\n"}


@pytest.fixture
def work_folder(tmp_path):
    (tmp_path / "inside").mkdir()
    return tmp_path


def write_archive(work_folder, *members):
    """Write an archive of members, each a name or ZipInfo with content."""
    file = work_folder / "made.zip"
    with zipfile.ZipFile(file, "w") as archive_file:
        for name, content in members:
            archive_file.writestr(name, content)
    return file


def check_refusal(file, work_folder, message):
    names_before = {name for name in tree(work_folder) if not name.startswith("inside")}
    with pytest.raises(InputError, match=message):
        archive.unpack_archive(file, work_folder / "inside")
    names_after = {name for name in tree(work_folder) if not name.startswith("inside")}
    assert names_after == names_before, "unpacking must not write outside of the folder"
    assert not [path for path in (work_folder / "inside").rglob("*") if path.is_symlink()]


def test_archive_is_reproducible_and_can_be_unpacked(work_folder):
    archive.write_archive(work_folder / "one.zip", FILES)
    archive.write_archive(work_folder / "two.zip", dict(reversed(FILES.items())))
    assert (work_folder / "one.zip").read_bytes() == (work_folder / "two.zip").read_bytes()
    assert sorted(archive.unpack_archive(work_folder / "one.zip", work_folder / "inside")) == sorted(FILES)
    assert {name: (work_folder / "inside" / name).read_bytes() for name in FILES} == FILES


@pytest.mark.parametrize(
    "name",
    [
        *("../evil.json", "report/../../evil.md", "/tmp/evil.json", "report/sub/evil.md", "C:evil.json"),
        *("report\\..\\evil.md", "report/.evil", "evil.py", "spec.yaml\x00.py", ""),
    ],
)
def test_unexpected_names_are_refused(work_folder, name):
    member = zipfile.ZipInfo("x")
    member.filename = name
    check_refusal(write_archive(work_folder, (member, b"evil")), work_folder, "`haltsweep bundle`")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFCHR, stat.S_IFIFO])
def test_links_devices_and_pipes_are_refused(work_folder, kind):
    member = zipfile.ZipInfo("plan.json")
    member.external_attr = (kind | 0o777) << 16
    check_refusal(write_archive(work_folder, (member, b"../../outside")), work_folder, "'plan.json'")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_repeated_name_is_refused(work_folder):
    check_refusal(
        write_archive(work_folder, ("plan.json", b"1"), ("plan.json", b"2")), work_folder, "'plan.json'"
    )


def test_encrypted_member_is_refused(work_folder):
    file = write_archive(work_folder, ("plan.json", b"1"))
    content = bytearray(file.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    file.write_bytes(content)
    check_refusal(file, work_folder, file.name)


def test_highly_compressed_archive_is_refused(work_folder, monkeypatch):
    monkeypatch.setattr(archive, "EXTRA_BYTES", 100_000)
    member = zipfile.ZipInfo("ledger.jsonl")
    member.compress_type = zipfile.ZIP_DEFLATED
    file = write_archive(work_folder, (member, b"\0" * 1_000_000))
    limit = archive.max_unpacked_bytes(file.stat().st_size)
    assert 100_000 < limit < 200_000
    check_refusal(file, work_folder, f" {limit:,} bytes")
    assert not list((work_folder / "inside").iterdir())
    content = bytearray(file.read_bytes())
    offset = content.index(b"PK\x01\x02") + 24
    content[offset : offset + 4] = struct.pack("<I", 10)  # the stated size is small
    file.write_bytes(content)
    check_refusal(file, work_folder, file.name)
    assert sum(path.stat().st_size for path in (work_folder / "inside").rglob("*")) <= limit


def test_archive_that_could_not_be_unpacked_is_not_written(work_folder, monkeypatch):
    monkeypatch.setattr(archive, "MAX_FILE_BYTES", 1000)
    with pytest.raises(InputError, match=r"report/report.json.* 1,000 .* 1,001"):
        archive.write_archive(work_folder / "sweep.zip", {"report/report.json": b"x" * 1001})
    monkeypatch.setattr(archive, "MAX_BYTES", 1500)
    with pytest.raises(InputError, match=r"1,500 .* 1,601"):
        archive.write_archive(
            work_folder / "sweep.zip", {"plan.json": b"x" * 600, "ledger.jsonl": b"x" * 1001}
        )
    assert not (work_folder / "sweep.zip").exists()


def test_too_many_files_are_refused(work_folder, monkeypatch):
    monkeypatch.setattr(archive, "MAX_FILES", 2)
    check_refusal(
        write_archive(work_folder, *((f"report/{number}.md", b"") for number in range(3))),
        work_folder,
        "3 files",
    )


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06" + b"\xff" * 18])
def test_file_that_is_no_archive_is_refused(work_folder, content):
    file = work_folder / "made.zip"
    file.write_bytes(content)
    check_refusal(file, work_folder, "`haltsweep bundle`")


def test_flipped_byte_is_refused_or_changes_no_file(work_folder):
    file = work_folder / "made.zip"
    archive.write_archive(file, FILES)
    archive_bytes = file.read_bytes()
    for position in range(0, len(archive_bytes), 3):
        file.write_bytes(
            archive_bytes[:position] + bytes([archive_bytes[position] ^ 0xFF]) + archive_bytes[position + 1 :]
        )
        folder = work_folder / "inside" / str(position)
        folder.mkdir()
        try:
            names = archive.unpack_archive(file, folder)
        except InputError:
            continue
        assert all((folder / name).read_bytes() in FILES.values() for name in names)
