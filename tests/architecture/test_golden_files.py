"""The comparison with golden files can fail, and --accept rewrites them."""

import pytest

from conftest import compare_golden


def test_a_change_fails_and_shows_the_difference(tmp_path):
    path = tmp_path / "report.txt"
    path.write_text("wait 10 s\n")
    with pytest.raises(pytest.fail.Exception, match=r"-wait 10 s\n\+wait 11 s"):
        compare_golden(path, "wait 11 s", accept=False)
    assert path.read_text() == "wait 10 s\n"


def test_a_missing_golden_file_fails(tmp_path):
    with pytest.raises(pytest.fail.Exception, match="make accept"):
        compare_golden(tmp_path / "report.txt", "wait 10 s", accept=False)


def test_accept_writes_the_file_that_then_passes(tmp_path):
    path = tmp_path / "folder" / "report.txt"
    compare_golden(path, "wait 10 s", accept=True)
    compare_golden(path, "wait 10 s\n", accept=False)
