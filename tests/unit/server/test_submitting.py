"""Submitting: files of every form become jobs, complete at the moment of acceptance; all of a request or nothing."""

import os
import pwd
from dataclasses import replace

import pytest

from clearway.model.errors import InputError
from clearway.model.jobs import DependencyKind
from clearway.server.access import Reach
from clearway.server.auth import Identity, Role
from clearway.server.submissions import parse_submission
from clearway.wire.api import API, BODY_BYTES_MAX, SubmitRequest, SubmittedFile
from support.fake_control import NOW_MS
from support.served import add_user_of

SCRIPT = "#!/bin/bash\n#SBATCH -J night -a 1-3\nsrun x\n"


def submit(ask, *files, user="ada", params=None, **fields):
    body = {"files": list(files), "cwd": "/home/ada", **fields}
    return ask(user, "POST", f"{API}/jobs", json=body, params=params)


def test_job_files_scripts_and_structures_go_together_in_one_request(ask, control):
    answer = submit(
        ask,
        {"text": "jobs:\n  - {name: a, run: x}\n  - {name: b, run: y, depends_on: a}\n", "source": "two.yaml"},
        {"text": SCRIPT, "source": "night.sh"},
        {"job": {"name": "c", "command": ["python", "train.py"], "resources": {"gpus": 2}}},
    )
    assert answer.status_code == 201
    assert answer.json()["jobs"] == [1, 2, 3, 4, 5, 6]
    assert answer.json()["firsts"] == [1, 2, 3, 6], "an array is one"
    assert [job.name for job in control.jobs.values()] == ["a", "b", "night", "night", "night", "c"]
    assert [(each.kind, each.job) for each in control.specs[2].dependencies] == [(DependencyKind.AFTER_OK, 1)]
    assert [job.array for job in control.jobs.values()] == [None, None, 3, 3, 3, None]
    assert control.runs[6].script == "python train.py"
    assert {job.user for job in control.jobs.values()} == {"ada"}
    assert {job.submit_ms for job in control.jobs.values()} == {NOW_MS}


def test_a_model_that_no_node_has_is_said_at_once(ask, control):
    answer = submit(ask, {"job": {"run": "x", "resources": {"gpus": "H100:2"}}})
    assert "no node has a device H100, of models there are: h100; did you mean 'h100'?" in answer.json()["notes"]
    answer = submit(ask, {"job": {"run": "x", "resources": {"gpus": "h100:2"}}})
    assert not any("no node" in note for note in answer.json()["notes"])
    assert len(control.jobs) == 2, "nodes may come"


def test_a_job_gets_the_first_tenant_of_its_submitter(ask, control):
    submit(ask, {"job": {"run": "x"}})
    submit(ask, {"job": {"run": "x"}}, user="op")
    submit(ask, {"job": {"run": "x", "tenant": "vision-students"}}, user="lead")
    assert [job.tenant for job in control.jobs.values()] == ["vision", "root", "vision-students"]


def test_the_environment_is_complete_at_acceptance(ask, control):
    sent = {"HOME": "/home/ada", "PATH": "/bin", "CLEARWAY_TOKEN": "cw_secret"}
    submit(ask, {"job": {"run": "x", "env": {"PATH": "/opt", "EPOCHS": "7"}}}, environment=sent)
    submit(ask, {"job": {"run": "x", "inherit_env": False, "env": {"A": "b"}}}, environment=sent)
    submit(ask, {"text": "#!/bin/sh\n#SBATCH --export=HOME,B=c,ABSENT\nx\n"}, environment=sent)
    submit(ask, {"text": "#!/bin/sh\n#SBATCH --export=NONE\nx\n"}, environment=sent)
    environments = [dict(run.environment) for run in control.runs.values()]
    assert environments == [
        {"HOME": "/home/ada", "PATH": "/opt", "EPOCHS": "7"},
        {"A": "b"},
        {"HOME": "/home/ada", "B": "c"},
        {},
    ]
    assert not any(run.inherits_environment or run.inherited_names for run in control.runs.values())


def test_equal_environments_are_one(ask, control):
    submit(
        ask,
        {"job": {"run": "x"}},
        {"job": {"run": "y"}},
        {"job": {"run": "z", "env": {"A": "b"}}},
        environment={"C": "d"},
    )
    assert control.runs[1].environment is control.runs[2].environment
    assert dict(control.runs[3].environment) == {"A": "b", "C": "d"}


def test_members_of_an_array_share_one_run(ask, control):
    submit(ask, {"text": SCRIPT}, environment={"A": "b"})
    assert len({id(run) for run in control.runs.values()}) == 1


@pytest.mark.parametrize(
    ("workdir", "cwd", "found"),
    [
        ("", "/home/a", "/home/a"),
        ("/data", "/home/a", "/data"),
        ("run", "/home/a", "/home/a/run"),
        ("", "", ""),
    ],
)
def test_a_job_works_where_it_says_or_where_its_submitter_was(ask, control, workdir, cwd, found):
    job = {"run": "x", **({"workdir": workdir} if workdir else {})}
    assert submit(ask, {"job": job}, cwd=cwd).status_code == 201
    assert control.jobs[1].workdir == control.runs[1].workdir == found


def test_a_job_from_nowhere_works_in_the_home_of_its_user(site, ask, control):
    account = pwd.getpwuid(os.geteuid())
    add_user_of(site, account.pw_name, Role.USER, "vision")
    submit(ask, {"job": {"run": "x"}}, {"job": {"run": "x", "workdir": "run"}}, user=account.pw_name, cwd="")
    assert [run.workdir for run in control.runs.values()] == [account.pw_dir, f"{account.pw_dir}/run"]


@pytest.mark.parametrize(("workdir", "cwd"), [("run", ""), ("", "home/ada"), ("", "~"), ("", "/a\0b")])
def test_a_folder_that_is_not_from_the_root_on_is_refused(ask, control, workdir, cwd):
    answer = submit(ask, {"job": {"run": "x", **({"workdir": workdir} if workdir else {})}}, cwd=cwd)
    assert answer.status_code == 422
    assert control.jobs == {}


def test_a_folder_and_a_file_with_control_characters_in_their_names_are_refused(ask, control):
    answer = submit(ask, {"job": {"run": "x"}}, cwd="/home/ada\x1b[31m")
    assert (answer.status_code, "U+001B" in answer.json()["detail"]) == (422, True)
    assert submit(ask, {"text": SCRIPT, "source": "night\x9b.sh"}).status_code == 422
    assert submit(ask, {"text": SCRIPT, "source": "night\u202e.sh"}).status_code == 422
    assert control.jobs == {}


def test_words_after_a_script_are_handed_on(ask, control):
    submit(ask, {"text": SCRIPT, "args": ["--seed", "7 8"]})
    assert control.runs[1].args == ("--seed", "7 8")


def test_options_of_the_command_line_go_before_the_scripts(ask, control):
    submit(ask, {"text": SCRIPT, "options": ["-J", "day", "--array=0"]})
    assert [(job.name, job.array_index) for job in control.jobs.values()] == [("day", 0)]
    assert control.runs[1].script == SCRIPT


def test_a_test_says_what_would_be_done_and_does_nothing(ask, control):
    answer = submit(ask, {"text": SCRIPT}, params={"test_only": "true"})
    assert answer.status_code == 200
    assert (answer.json()["jobs"], answer.json()["firsts"], answer.json()["is_test"]) == ([1, 2, 3], [1], True)
    assert answer.json()["notes"]
    assert control.jobs == {}


def test_a_test_refuses_a_queue_that_there_is_not_with_the_nearest_name(ask, control):
    answer = submit(ask, {"job": {"run": "x", "queue": "producton"}}, params={"test_only": "true"})
    assert answer.status_code == 422
    assert answer.json()["hint"] == "did you mean 'production'?"


def test_a_trial_refuses_a_dependency_on_a_number_that_was_never_given(ask, control):
    file = {"text": "#!/bin/sh\n#SBATCH -d afterok:99\n"}
    for user in ("op", "ada"):
        answer = submit(ask, file, user=user, params={"test_only": "true"})
        assert answer.status_code == 422
        assert "99" in answer.json()["detail"]
    submit(ask, {"job": {"run": "x"}})
    answer = submit(ask, {"text": "#!/bin/sh\n#SBATCH -d afterok:1\n"}, params={"test_only": "true"})
    assert answer.status_code == 200
    assert len(control.jobs) == 1


def test_a_trial_refuses_a_dependency_on_a_task_that_an_array_does_not_have(ask, control):
    submit(ask, {"text": SCRIPT})
    for task, status in ((3, 200), (9, 422)):
        file = {"text": f"#!/bin/sh\n#SBATCH -d afterok:1_{task}\n"}
        answer = submit(ask, file, params={"test_only": "true"})
        assert answer.status_code == status
    assert answer.json()["detail"] == "expected a task that array 1 has, found a dependency on 1_9"


def test_the_same_key_gets_the_same_answer_once(ask, control):
    first = submit(ask, {"text": SCRIPT}, key="k1").json()
    assert submit(ask, {"text": SCRIPT}, key="k1").json() == first
    assert len(control.jobs) == 3
    assert submit(ask, {"text": SCRIPT}, key="k1", user="bob").json()["jobs"] == [4, 5, 6], "keys are each user's own"


def test_errors_of_all_lines_of_a_file_come_with_line_and_hint(ask, control):
    answer = submit(ask, {"text": "run: x\ntime_limit: 3x\nreplicas: 0\n", "source": "train.yaml"})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    lines = answer.json()["detail"].splitlines()
    assert [line.split(": ")[:2] for line in lines] == [["train.yaml:2", "time_limit"], ["train.yaml:3", "replicas"]]


def test_one_bad_file_keeps_all_others_out(ask, control):
    answer = submit(ask, {"job": {"run": "x"}}, {"text": "#!/bin/sh\n#SBATCH -t never\n", "source": "b.sh"})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("b.sh:2: --time: expected")
    assert control.jobs == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"files": []}',
        b'{"files": [{"text": 7}]}',
        b'{"files": [{"texts": "x"}]}',
        b'{"files": [{"job": {"run": "x"}, "text": "run: x"}]}',
        b'{"files": [{"job": {"run": "x"}, "options": ["-n", "1"]}]}',
        b'{"files": [{"text": "run: x", "options": ["-n", "1"]}]}',
        b'{"files": [{"text": "run: x", "form": "script"}]}',
        b'{"files": [{"text": "run: x", "source": "a\\nb"}]}',
        b'{"files": [{"text": "run: x"}], "environment": {"A=B": "c"}}',
        b'{"files": [{"text": "run: x"}], "environment": {"A": "c\\u0000"}}',
        b'{"files": [{"text": "run: x"}], "key": "with blank"}',
        b'{"files": [{"text": "run: x"}], "cwd": "\\u0000"}',
        b'{"files": [{"job": {"run": "\\ud800"}}]}',
        b'{"files": [{"text": "run: \\ud800"}]}',
        b'{"files": [{"text": "run: \\"\\\\ud800\\""}]}',
        b'{"files": [{"text": "{\\"run\\": \\"\\\\ud800\\"}"}]}',
        b'{"files": [{"text": "run: x"}], "environment": {"A": "\\udcff"}}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"files": [{"job": ' + b'{"run":' * 5_000 + b"1" + b"}" * 5_000 + b"}]}",
    ],
    ids=range(24),
)
def test_a_body_that_is_no_submission_is_refused_with_a_problem(ask, control, body):
    answer = ask("ada", "POST", f"{API}/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["detail"]
    assert control.jobs == {}


def test_a_body_that_is_too_large_is_refused_whatever_its_header_says(ask, control):
    headers = {"Content-Type": "application/json"}
    declared = {**headers, "Content-Length": str(BODY_BYTES_MAX + 1)}
    assert ask("ada", "POST", f"{API}/jobs", content=b"{}", headers=declared).status_code == 413

    async def parts():
        for _ in range(BODY_BYTES_MAX // (1 << 20) + 1):
            yield b" " * (1 << 20)

    assert ask("ada", "POST", f"{API}/jobs", content=parts(), headers=headers).status_code == 413
    assert control.jobs == {}


def test_a_storage_that_fails_is_503_and_nothing_is_taken(ask, control):
    control.storage_error = "disk full"
    answer = submit(ask, {"job": {"run": "x"}})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "disk full" in answer.json()["detail"]
    control.storage_error = ""
    assert submit(ask, {"job": {"run": "x"}}).json()["jobs"] == [1]


def test_what_the_control_plane_refuses_is_422(ask, control):
    answer = submit(ask, {"job": {"run": "x", "queue": "nowhere"}})
    assert (answer.status_code, answer.json()["found"]) == (422, "'nowhere'")


def test_a_thousand_structures_are_one_request(ask, control):
    files = [{"job": {"run": "x", "name": f"j{number}"}} for number in range(1_000)]
    assert len(submit(ask, *files).json()["jobs"]) == 1_000
    assert control.jobs[1000].name == "j999"


LIKE = {"command": ["python", "train.py", "--seed=1"], "resources": {"gpus": 1}, "time_limit": "2h"}
FILES = [
    LIKE,
    LIKE | {"name": "second"},
    LIKE | {"name": "third", "command": ["python", "train.py", "--seed=2"]},
    LIKE | {"command": "one word"},
    {"run": "echo $A", "env": {"A": 1}},
    {"run": "echo $B", "env": {"A": "1"}, "name": "with text"},
    {"run": "echo $C", "env": {"A": True}},
    LIKE | {"resources": {"gpus": 2}},
    LIKE | {"array": "0-2", "name": "tasks"},
    LIKE | {"array": "0-2", "name": "other tasks"},
    {"jobs": [LIKE | {"name": "a"}, LIKE | {"name": "b", "depends_on": "a"}]},
    LIKE | {"depends_on": "afterok:7"},
    LIKE | {"command": ["word"] * 1_001},
    LIKE | {"name": "last"},
]


def parse(reach, *jobs, args=()):
    files = tuple(SubmittedFile(job=job, args=args) for job in jobs)
    request = SubmitRequest(files=files, cwd="/home/ada", environment={"PATH": "/bin"})
    return parse_submission(request, reach, now_ms=NOW_MS)


@pytest.fixture
def reach():
    return Reach(identity=Identity(user="ada", role=Role.OPERATOR, unix_user="ada"), tenants=None)


def test_like_jobs_of_one_request_become_what_each_would_by_itself(reach):
    together = parse(reach, *FILES)
    jobs, runs, notes = [], [], {}
    for file in FILES:
        alone = parse(reach, file)
        shift = len(jobs)
        jobs += [replace(job, id=job.id + shift) for job in alone.jobs]
        runs += alone.runs
        notes |= dict.fromkeys(alone.notes)
    plain = [replace(job, array=None, dependencies=()) for job in together.jobs]
    assert plain == [replace(job, array=None, dependencies=()) for job in jobs]
    assert list(together.runs) == runs
    assert set(together.notes) == set(notes)
    arrays = [job.array.array for job in together.jobs if job.array is not None]
    assert arrays == [together.jobs[8].id] * 3 + [together.jobs[11].id] * 3
    assert together.jobs[1].request is together.jobs[2].request, "what is alike is kept once"


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (LIKE | {"name": "a\nb"}, "name: expected text without control characters"),
        (LIKE | {"name": 5}, "name: expected text, found 5"),
        (LIKE | {"name": None}, "name: expected a value, found nothing"),
        (LIKE | {"name": "\ud800"}, "half of a surrogate pair"),
        (LIKE | {"command": []}, "command: expected a list of at least one item"),
        (LIKE | {"command": ["a", 5]}, "command[1]: expected text, found 5"),
        (LIKE | {"run": "x"}, "run: expected either `run` or `command`, found 'both'"),
        (LIKE | {"run": ""}, "run: "),
        ({key: value for key, value in LIKE.items() if key != "command"}, "run: expected either `run` or `command`"),
        (LIKE | {"resources": {"gpus": True}}, "resources.gpus"),
        (LIKE | {"tenand": "a"}, "tenand"),
        ({"name": "a", "jobs": [LIKE]}, "name: expected one of"),
    ],
)
def test_an_error_in_one_of_many_like_jobs_is_said_as_of_one_alone(reach, bad, said):
    with pytest.raises(InputError) as alone:
        parse(reach, bad)
    with pytest.raises(InputError) as among:
        parse(reach, LIKE, {"jobs": [LIKE]}, LIKE | {"name": "b"}, bad, LIKE)
    assert str(among.value) == str(alone.value)
    assert said in str(alone.value)


def test_a_tenant_of_others_is_refused_with_the_file_that_names_it(ask, control):
    files = [{"job": {"name": f"n{place}", "run": "x"}, "source": f"f{place}.yaml"} for place in range(100)]
    files[61]["job"]["tenant"] = "nlp"
    answer = submit(ask, *files)
    assert answer.status_code == 403
    assert answer.json()["detail"] == "f61.yaml: tenant: expected one of yours (vision), found 'nlp'"
    assert not control.jobs


@pytest.mark.parametrize(
    "file",
    [
        {"job": {"run": "x", "tenant": "root"}},
        {"text": "jobs: [{run: x}, {run: x, tenant: root}]"},
        {"text": SCRIPT, "options": ["-A", "root"]},
    ],
)
def test_the_root_is_a_tenant_of_others_too_where_it_is_named(ask, control, file):
    answer = submit(ask, file)
    assert answer.status_code == 403
    assert "expected one of yours (vision), found 'root'" in answer.json()["detail"]
    assert not control.jobs
    assert submit(ask, file, user="op").status_code == 201


def test_words_for_the_script_belong_to_each_file(reach):
    files = tuple(SubmittedFile(job=LIKE, args=args) for args in ((), ("1",), ("2",), ()))
    parsed = parse_submission(SubmitRequest(files=files, cwd="/home/ada"), reach, now_ms=NOW_MS)
    assert [run.args for run in parsed.runs] == [(), ("1",), ("2",), ()]
