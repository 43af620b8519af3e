"""Folders of versions: published whole, linked by a rename, shared with the version before."""

from __future__ import annotations

from pathlib import Path

from headrace.tables.version_folders import VersionFolders, data_files, share_files, tick_folders


def publish(versions: VersionFolders, number: int, *names: str) -> None:
    staged = versions.stage(number)
    for name in names:
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).write_text(f"{number} {name}")
    versions.publish(number, staged)


def test_a_version_that_is_being_written_is_not_there(tmp_path: Path) -> None:
    versions = tick_folders(tmp_path / "out")
    assert (versions.numbers(), versions.latest()) == ([], None)
    publish(versions, 2, "a")
    (versions.stage(10) / "b").parent.mkdir()
    assert versions.numbers() == [2]
    publish(versions, 10, "b")
    assert [folder.name for folder in map(versions.folder, versions.numbers())] == ["tick=2", "tick=10"]
    assert (versions.latest(), versions.latest(before=10), versions.latest(before=2)) == (10, 2, None)


def test_an_earlier_attempt_leaves_nothing(tmp_path: Path) -> None:
    versions = VersionFolders(tmp_path)
    publish(versions, 1, "a", "b")
    publish(versions, 1, "c")
    assert [file.name for file in data_files(versions.folder(1))] == ["c"]
    versions.stage(2).mkdir()
    versions.discard_staged()
    assert [each.name for each in tmp_path.iterdir()] == ["1"]


def test_other_names_are_no_versions(tmp_path: Path) -> None:
    versions = tick_folders(tmp_path)
    for name in ("1", "tick=", "tick=x", "tick=-1", ".tick=3.tmp", "_staging"):
        (tmp_path / name).mkdir()
    assert versions.numbers() == []


def test_a_link_names_the_version_to_read(tmp_path: Path) -> None:
    versions, link = VersionFolders(tmp_path / "versions"), tmp_path / "current"
    assert versions.linked(link) is None
    for number in (1, 2):
        publish(versions, number, "a")
        versions.point(link, number)
        assert versions.linked(link) == number
        assert (link / "a").read_text() == f"{number} a"
    (tmp_path / "moved").mkdir()
    moved = tmp_path.rename(tmp_path.with_name("elsewhere"))
    assert (moved / "current/a").read_text() == "2 a"


def test_a_link_to_another_place_names_no_version(tmp_path: Path) -> None:
    versions, link = VersionFolders(tmp_path / "versions"), tmp_path / "current"
    publish(versions, 1, "a")
    (tmp_path / "1").mkdir()
    for target in ("1", "versions/x", "versions/1/a"):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert versions.linked(link) is None


def test_versions_that_are_not_needed_go(tmp_path: Path) -> None:
    versions = VersionFolders(tmp_path)
    for number in range(1, 6):
        publish(versions, number, "a")
    versions.retain({2, 5, 9})
    assert versions.numbers() == [2, 5]
    versions.remove(7)
    versions.remove(5)
    assert versions.numbers() == [2]


def test_versions_share_files_and_outlive_each_other(tmp_path: Path) -> None:
    versions = VersionFolders(tmp_path)
    publish(versions, 1, "a", "p=1/b", "c")
    old, staged = versions.folder(1), versions.stage(2)
    staged.mkdir()
    share_files([file for file in data_files(old) if file.name != "c"], old, staged)
    versions.publish(2, staged)
    assert (versions.folder(2) / "p=1/b").samefile(old / "p=1/b")
    versions.remove(1)
    found = {file.name: file.read_text() for file in data_files(versions.folder(2))}
    assert found == {"a": "1 a", "b": "1 p=1/b"}
