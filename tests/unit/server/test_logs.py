"""Logs: a job's own files by its backend's names, whole or in part, and nothing else that lies on the disk."""

import os
import pwd

import pytest

from clearway.model.errors import InputError
from clearway.ports.views import JobState
from clearway.server.logs import LogFile, LogPlace, find_log, find_objection, read_part
from clearway.server.problems import Refusal
from clearway.server.settings import ServerSettings
from clearway.wire.api import API
from support.fake_control import NOW_MS
from support.served import asked, make_site
from support.stored import make_view

OUTSIDE = "root:x:0:0"


@pytest.fixture
def folder(tmp_path):
    """The job's working directory, beside a file that is none of its business."""
    (tmp_path / "outside.txt").write_text(OUTSIDE)
    work = tmp_path / "jobs"
    work.mkdir()
    return work


def job_in(folder, output="out.log", **fields):
    fields = {"state": JobState.RUNNING, "start_ms": NOW_MS, "submit_ms": NOW_MS, "user": "ada"} | fields
    return make_view(7, tenant="vision", workdir=str(folder), output=output, nodes=("n1", "n2"), **fields)


def log_of(ask, user="ada", **params):
    return ask(user, "GET", f"{API}/jobs/7/logs", params=params)


# --- which file -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "fields", "name"),
    [
        ("", {}, "slurm-7.out"),
        ("", {"array": 5, "array_index": 2}, "slurm-5_2.out"),
        ("%x-%j-%u.log", {"name": "train"}, "train-7-ada.log"),
        ("%x.log", {"name": "../../outside"}, ".._.._outside.log"),
        ("%x/log", {"name": ".."}, "__/log"),
        ("%4t-%N", {"replicas": 2}, "0001-n2"),
        ("%%j", {}, "%j"),
        ("\\%j", {}, "%j"),
        ("%A_%a", {"array": 5, "array_index": 2}, "5_2"),
        ("/data/%j.log", {}, "/data/7.log"),
    ],
)
def test_a_log_is_where_the_job_writes_it(folder, output, fields, name):
    job = job_in(folder, output, **fields)
    place = find_log(job, "output", job.replicas - 1, "")
    assert place.path == os.path.join(folder, name)


def test_errors_go_with_the_output_unless_they_have_a_file_of_their_own(folder):
    job = job_in(folder)
    assert find_log(job, "error", 0, "").path == find_log(job, "output", 0, "").path
    assert find_log(job_in(folder, error="err.log"), "error", 0, "").path == f"{folder}/err.log"


def test_the_replicas_of_one_node_come_before_those_of_the_next(folder):
    devices = (("n1", (0, 1)), ("n2", (4, 5)))
    job = job_in(folder, "%N-%t", replicas=4, device_milli=4_000, devices=devices)
    names = [os.path.basename(find_log(job, "output", replica, "").path) for replica in range(4)]
    assert names == ["n1-0", "n1-1", "n2-2", "n2-3"]


@pytest.mark.parametrize(
    ("fields", "replica", "said"),
    [
        ({"start_ms": None, "state": JobState.PENDING}, 0, "expected a job that has started"),
        ({}, 1, "expected a replica from 0 to 0"),
        ({"output": "/dev/null"}, 0, "wants none kept"),
        ({"output": "none"}, 0, "wants none kept"),
    ],
)
def test_a_log_that_cannot_be_is_refused(folder, fields, replica, said):
    with pytest.raises(Refusal, match=said):
        find_log(job_in(folder, **fields), "output", replica, "")


# --- which part -------------------------------------------------------------------------------------------------------


@pytest.fixture
def served(control, folder):
    (folder / "out.log").write_bytes(b"".join(b"line %d\n" % number for number in range(10)))
    control.put(job_in(folder))
    return control


def test_a_log_is_sent_whole_with_its_place(ask, served):
    answer = log_of(ask)
    assert answer.content.count(b"\n") == 10
    assert answer.headers["content-type"] == "application/octet-stream"
    assert [answer.headers[f"x-log-{name}"] for name in ("offset", "size", "final")] == ["0", "70", "false"]


def test_a_part_is_sent_from_an_offset_on(ask, served):
    answer = log_of(ask, offset=7, limit=7)
    assert (answer.content, answer.headers["x-log-offset"]) == (b"line 1\n", "7")
    assert log_of(ask, offset=70).content == b""
    assert log_of(ask, offset=71).status_code == 422


@pytest.mark.parametrize(
    ("tail", "first"), [(0, b""), (1, b"line 9\n"), (3, b"line 7\n"), (10, b"line 0\n"), (99, b"line 0\n")]
)
def test_a_tail_is_so_many_lines(ask, served, tail, first):
    content = log_of(ask, tail=tail).content
    assert content.startswith(first)
    assert content.count(b"\n") == min(tail, 10)


@pytest.mark.parametrize("text", [b"", b"\n", b"a", b"a\nb", b"a\nb\n", b"\n\n\n", b"x" * 200_000, b"x\n" * 100_000])
@pytest.mark.parametrize("tail", [0, 1, 2, 3, 70_000])
def test_tails_agree_with_splitting_the_whole(folder, text, tail):
    (folder / "out.log").write_bytes(text)
    place = LogPlace(f"{folder}/out.log", str(folder), pwd.getpwuid(os.geteuid()).pw_name, 0)
    part = read_part(place, offset=0, tail=tail, limit=1 << 30, is_final=True)
    lines = text.splitlines(keepends=True)
    assert part.data == b"".join(lines[max(len(lines) - tail, 0) :])


def test_a_log_is_final_when_its_job_has_ended_and_its_end_is_sent(ask, served):
    served.finish(7)
    assert log_of(ask, limit=69).headers["x-log-final"] == "false"
    assert log_of(ask).headers["x-log-final"] == "true"


@pytest.mark.parametrize(
    "query", ["offset=-1", "tail=-1", "limit=0", "limit=99999999999", "stream=both", "replica=x", "path=/etc/passwd"]
)
def test_a_part_that_makes_no_sense_is_refused(ask, served, query):
    assert ask("ada", "GET", f"{API}/jobs/7/logs?{query}").status_code == 422


# --- and nothing else -------------------------------------------------------------------------------------------------

PAYLOADS = [
    "../outside.txt",
    "../jobs/../outside.txt",
    "./../outside.txt",
    "{parent}/outside.txt",
    "{parent}/jobs/../outside.txt",
    "/etc/passwd",
    "/etc/shadow",
    "//etc/passwd",
    "/proc/self/environ",
    "/proc/self/mem",
    "/proc/self/fd/0",
    "/dev/zero",
    "/dev/stdin",
    "link-to-file",
    "link-to-folder/outside.txt",
    "link-to-link",
    "hard-link",
    "pipe",
    "..",
    ".",
    "",
    "work\0.log",
    "out.log\0.txt",
    "%x",
    "~/outside.txt",
    "file:{parent}/outside.txt",
    "..%2foutside.txt",
    "..\\outside.txt",
    "a/" * 3_000,
    "a" * 5_000,
    "\udcff",
]


@pytest.fixture
def traps(folder):
    (folder / "link-to-file").symlink_to(folder.parent / "outside.txt")
    (folder / "link-to-folder").symlink_to(folder.parent)
    (folder / "link-to-link").symlink_to("link-to-file")
    os.link(folder.parent / "outside.txt", folder / "hard-link")
    os.utime(folder / "hard-link", (0, 0))
    os.mkfifo(folder / "pipe")


@pytest.mark.parametrize("user", ["ada", "nobody"])
def test_no_output_path_reads_what_lies_outside(ask, control, folder, traps, user):
    for payload in PAYLOADS:
        name = payload.format(parent=folder.parent) if "{" in payload else payload
        control.put(job_in(folder, name, user=user, name="../outside.txt", submit_ms=NOW_MS))
        for params in ({}, {"stream": "error"}, {"tail": 5}):
            answer = log_of(ask, user="lead", **params)
            assert answer.status_code == 404, (payload, answer.content[:80])
            assert OUTSIDE not in answer.text, payload


def test_no_working_directory_reads_what_was_there_before(ask, control, folder):
    for workdir in ("", "jobs", "..", "/", "/etc", "/proc/self", "\0", "/nonexistent", str(folder.parent)):
        for output in ("passwd", "etc/passwd", "environ", "outside.txt", "../outside.txt"):
            control.put(job_at(workdir, output))
            assert log_of(ask).status_code == 404, (workdir, output)


def job_at(workdir, output):
    fields = {"state": JobState.RUNNING, "start_ms": NOW_MS, "submit_ms": NOW_MS + 10**12, "user": "ada"}
    return make_view(7, tenant="vision", workdir=workdir, output=output, **fields)


def test_the_token_file_of_the_server_cannot_be_a_log(tmp_path):
    """The submitter names the folder, so that the file does lie in it; but it is older than his job."""
    site = make_site(tmp_path)
    os.utime(site.token_file, (NOW_MS / 1_000 - 3_600, NOW_MS / 1_000 - 3_600))
    site.control.put(job_at(str(tmp_path), "tokens.json"))
    with asked(site) as web:
        answer = web.request("GET", f"{API}/jobs/7/logs", headers=site.bearer("ada"))
    assert answer.status_code == 404
    assert "sha256" not in answer.text


@pytest.fixture
def opened(folder):
    (folder / "out.log").write_text("hello")
    descriptor = os.open(folder / "out.log", os.O_PATH)
    yield descriptor
    os.close(descriptor)


def objection(opened, folder, uid, workdir=None, submit_ms=0):
    place = LogPlace(f"{folder}/out.log", workdir or str(folder), "ada", submit_ms)
    return find_objection(opened, place, lambda _user: uid)


def test_a_users_own_file_may_lie_anywhere(opened, folder):
    assert objection(opened, folder, os.geteuid(), workdir="/nonexistent") == ""


def test_who_has_no_account_here_reads_what_was_written_in_his_folder(opened, folder):
    assert objection(opened, folder, None) == ""
    assert objection(opened, folder, None, workdir="/nonexistent") == "outside of the working directory"
    assert objection(opened, folder, None, submit_ms=1 << 50) == "older than the job"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs jobs as other users")
def test_root_shows_each_user_only_his_own(opened, folder):
    assert objection(opened, folder, 12_345) == "another user's"
    os.chown(folder / "out.log", 12_345, -1)
    assert objection(opened, folder, 12_345) == ""
    assert objection(opened, folder, 54_321) == "another user's"
    assert objection(opened, folder, None) == "another user's"


def test_devices_and_pipes_are_not_even_opened(folder):
    os.mkfifo(folder / "pipe")
    writer = os.open(folder / "pipe", os.O_RDWR | os.O_NONBLOCK)
    os.write(writer, b"hello")
    with pytest.raises(Refusal):
        LogFile(LogPlace(f"{folder}/pipe", str(folder), "nobody-here", 0))
    assert os.read(writer, 5) == b"hello"
    os.close(writer)
    for device in ("/dev/null", "/dev/full"):
        with pytest.raises(Refusal):
            LogFile(LogPlace(device, "/dev", "nobody-here", 0))


def test_what_is_not_shown_is_answered_like_what_is_not_there(ask, control, folder, traps):
    said = set()
    for output in ("absent", "../outside.txt", "pipe", "link-to-file", "/absent/absent", "."):
        control.put(job_in(folder, output))
        said.add(log_of(ask).text)
    assert len(said) == 1


def test_where_all_jobs_run_as_one_account_its_files_are_shown(tmp_path, folder):
    (folder / "out.log").write_text("hello")
    own = pwd.getpwuid(os.geteuid()).pw_name
    assert find_log(job_in(folder), "output", 0, own).user == own
    site = make_site(tmp_path, settings=ServerSettings(account=own))
    site.control.put(job_in(folder, user="nobody"))
    with asked(site) as web:
        assert web.request("GET", f"{API}/jobs/7/logs", headers=site.bearer("ada")).text == "hello"


def test_an_offset_behind_the_end_is_an_error_of_the_caller(folder):
    (folder / "out.log").write_text("hello")
    place = LogPlace(f"{folder}/out.log", str(folder), "nobody-here", 0)
    with pytest.raises(InputError, match="at most 5, found 6"):
        read_part(place, offset=6, tail=None, limit=1, is_final=False)
