"""A request to submit becomes jobs: files parsed, environments and folders made complete, tenants filled in.

Decides nothing about clusters; it only refuses what cannot be a job. What it needs of the world comes as arguments.
"""

import os
import pwd
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final

from clearway.model.errors import InputError
from clearway.model.ids import ROOT_TENANT, JobId
from clearway.model.jobs import JobSpec
from clearway.model.runs import RunSpec
from clearway.ports.control import PROVISIONAL_ID
from clearway.ports.views import ClusterView
from clearway.server.access import Reach
from clearway.server.problems import Refusal
from clearway.wire.api import Form, SubmitRequest, SubmittedFile
from clearway.wire.documents import make_document
from clearway.wire.jobfile import JOBS_MAX, Template, find_likeness, parse_job_document, parse_job_file
from clearway.wire.problems import ParseError, suggest_name
from clearway.wire.sbatch import parse_sbatch
from clearway.wire.submission import ParsedSubmission
from clearway.wire.texts import refuse_controls

NOTES_MAX: Final = 200
"""Notes of one answer; files by the thousand say the same of each."""

SECRET_NAMES: Final = ("CLEARWAY_TOKEN",)
"""Variables that no job inherits: they would let it speak in its submitter's name."""


Shape = Callable[[JobSpec, RunSpec], JobSpec]
"""What a backend makes of a job that is submitted; raises InputError where it could never run it."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """jobs and runs in order, numbered from PROVISIONAL_ID; firsts: the number of each job or array."""

    jobs: tuple[JobSpec, ...]
    runs: tuple[RunSpec, ...]
    firsts: tuple[JobId, ...]
    notes: tuple[str, ...]


def parse_submission(request: SubmitRequest, reach: Reach, *, now_ms: int, shape: Shape | None = None) -> Parsed:
    """All jobs of all files, ready to be accepted. Raises InputError, Refusal.

    shape: what the backend makes of each job; jobs then inherit nothing of their submitter's environment, which means
    nothing where they run.
    """
    parser = _Parser(request, reach, now_ms, inherited=request.environment if shape is None else {})
    jobs: list[JobSpec] = []
    runs: list[RunSpec] = []
    notes: dict[str, None] = {}
    for file in request.files:
        parsed = parser.parse(file, PROVISIONAL_ID + len(jobs))
        jobs.extend(parsed.jobs)
        runs.extend(parsed.runs)
        notes.update(dict.fromkeys(parsed.notes))
        if len(jobs) > JOBS_MAX:
            raise InputError(f"expected at most {JOBS_MAX} jobs in one submission, found more; submit in parts")
    if shape is None and any(run.tolerations for run in runs):
        notes["`tolerations` are not acted upon: the nodes of this backend have no taints"] = None
    if shape is not None:
        jobs = [shape(job, run) for job, run in zip(jobs, runs, strict=True)]
    return Parsed(tuple(jobs), tuple(runs), _find_firsts(jobs), tuple(notes)[:NOTES_MAX])


class _Parser:
    """Parses the files of one request. One that differs from another of them in the name and command of its job alone
    is not read and checked again as a whole: batches are mostly jobs of one template."""

    def __init__(self, request: SubmitRequest, reach: Reach, now_ms: int, *, inherited: Mapping[str, str]) -> None:
        self._reach = reach
        self._now_ms = now_ms
        self._user = reach.identity.unix_user
        self._folder = request.cwd or find_home(self._user)
        self._environments = _Environments(inherited)
        self._known: dict[Hashable, tuple[Template, tuple[str, ...]]] = {}

    def parse(self, file: SubmittedFile, first_id: int) -> ParsedSubmission:
        """The file's jobs, complete. Raises InputError, Refusal."""
        is_plain = file.job is not None and not file.text and not file.options
        found = find_likeness(file.job) if is_plain and file.job is not None else None
        if found is None:
            return self._parse(file, first_id)
        (common, own), args = found, file.args
        known = self._known.get((common, args))
        if known is None:
            parsed = self._parse(file, first_id)
            self._known[common, args] = Template(parsed.jobs[0], parsed.runs[0]), parsed.notes
            return parsed
        template, notes = known
        job, run = template.make(first_id, own)
        return ParsedSubmission(jobs=(job,), runs=(run,), notes=notes)

    def _parse(self, file: SubmittedFile, first_id: int) -> ParsedSubmission:
        parsed = _parse_file(file, self._user, self._now_ms, first_id)
        jobs = tuple(
            _choose_tenant(job, self._reach, file.source, is_named=job.id in parsed.in_root) for job in parsed.jobs
        )
        runs = tuple(_complete_runs(parsed.runs, file, self._folder, self._environments))
        return ParsedSubmission(jobs=jobs, runs=runs, notes=parsed.notes)


def note_models(jobs: Iterable[JobSpec], cluster: ClusterView) -> tuple[str, ...]:
    """A line for each device model that is asked for and that no node has: its jobs are accepted, and wait."""
    known = list(dict.fromkeys(device.model for node in cluster.nodes for device in node.devices))
    notes = []
    for models in dict.fromkeys(job.request.device_models for job in jobs):
        if models and not set(models) & set(known):
            there = ", ".join(known) or "none"
            nearest = suggest_name(models[0], known)
            hint = f"; {nearest}" if nearest else ""
            notes.append(f"no node has a device {' or '.join(models)}, of models there are: {there}{hint}")
    return tuple(notes[:NOTES_MAX])


def named_jobs(jobs: Iterable[JobSpec]) -> tuple[JobId, ...]:
    """Jobs accepted earlier on which these depend."""
    named = (dependency.job for job in jobs for dependency in job.dependencies)
    return tuple(dict.fromkeys(job for job in named if job is not None and job < PROVISIONAL_ID))


def named_tasks(jobs: Iterable[JobSpec]) -> tuple[tuple[JobId, int], ...]:
    """(array, index) of tasks of arrays accepted earlier on which these depend."""
    named = ((dependency.job, dependency.task) for job in jobs for dependency in job.dependencies)
    return tuple(dict.fromkeys((job, task) for job, task in named if job and task is not None and job < PROVISIONAL_ID))


def check_names(jobs: Iterable[JobSpec], cluster: ClusterView) -> None:
    """Raise InputError where a job names a queue or tenant that is not there."""
    queues, tenants = (
        [queue.name for queue in cluster.queues],
        [ROOT_TENANT, *(tenant.name for tenant in cluster.tenants)],
    )
    for job in jobs:
        for word, name, known in (("queue", job.queue, queues), ("tenant", job.tenant, tenants)):
            if name not in known:
                hint = suggest_name(name, known) or "see what there is"
                raise InputError(f"expected a {word} of this site, found {name!r:.80}; {hint}")


def _parse_file(file: SubmittedFile, user: str, now_ms: int, first_id: int) -> ParsedSubmission:
    if file.job is not None:
        if file.text or file.options:
            raise InputError(f"{file.source}: expected `text` or `job`, found both; options are for scripts")
        document = make_document(file.job, source=file.source)
        return parse_job_document(document, now_ms=now_ms, first_id=first_id, user=user)
    if is_script(file):
        return parse_sbatch(
            file.text, source=file.source, now_ms=now_ms, first_id=first_id, user=user, options=file.options
        )
    if file.options:
        raise InputError(f"{file.source}: expected a script with options, found a job file; write them into the file")
    return parse_job_file(file.text, source=file.source, now_ms=now_ms, first_id=first_id, user=user)


def is_script(file: SubmittedFile) -> bool:
    """Whether a file is a batch script, by what it says it is or by its first line."""
    return file.form is Form.SCRIPT or (file.form is Form.AUTO and file.text.startswith("#!"))


def _choose_tenant(job: JobSpec, reach: Reach, source: str, *, is_named: bool) -> JobSpec:
    """The job in the tenant that it names, else in the first of its user. Raises Refusal for one that is not his.

    is_named: whether it names the root, in which a job that names none is, too.
    """
    if reach.sees(job.tenant):
        return job
    mine = reach.identity.tenants
    if job.tenant == ROOT_TENANT and mine and not is_named:
        return replace(job, tenant=mine[0])
    raise Refusal(403, f"{source}: tenant: expected one of yours ({', '.join(mine)}), found {job.tenant!r:.80}")


class _Environments:
    """Environments of a submission's jobs; equal ones are one object, since all jobs that wait are kept in memory.

    sent: the submitter's variables.
    """

    def __init__(self, sent: Mapping[str, str]) -> None:
        self._sent = {name: value for name, value in sent.items() if name not in SECRET_NAMES}
        self._made: dict[tuple[object, ...], tuple[tuple[str, str], ...]] = {}

    def of(self, run: RunSpec) -> tuple[tuple[str, str], ...]:
        """What a job inherits, and over it what it says itself."""
        key = (run.inherits_environment, run.inherited_names, run.environment)
        if key not in self._made:
            names = self._sent if run.inherits_environment else run.inherited_names
            inherited = {name: self._sent[name] for name in names if name in self._sent}
            self._made[key] = tuple((inherited | dict(run.environment)).items())
        return self._made[key]


def _complete_runs(
    runs: Iterable[RunSpec], file: SubmittedFile, cwd: str, environments: _Environments
) -> Iterable[RunSpec]:
    """Each run as it will be, whatever becomes of the submitter's shell. Members of an array go on sharing one."""
    before: RunSpec | None = None
    after: RunSpec | None = None
    for run in runs:
        if run is not before or after is None:
            before, after = run, _complete_run(run, file, cwd, environments)
        yield after


def _complete_run(run: RunSpec, file: SubmittedFile, cwd: str, environments: _Environments) -> RunSpec:
    return replace(
        run,
        args=file.args,
        workdir=_complete_folder(run.workdir, file, cwd),
        environment=environments.of(run),
        inherits_environment=False,
        inherited_names=(),
    )


def find_home(user: str) -> str:
    """The home of an account of this machine, where jobs work whose submitter is nowhere; "" = there is none."""
    try:
        home = pwd.getpwnam(user).pw_dir
    except (KeyError, ValueError):
        return ""
    return home if os.path.isabs(home) and os.path.isdir(home) else ""


def _complete_folder(workdir: str, file: SubmittedFile, cwd: str) -> str:
    if cwd and not cwd.startswith("/"):
        raise InputError(f"{file.source}: expected a folder from the root on, found {cwd!r:.80}")
    if workdir and not workdir.startswith("/") and not cwd:
        raise InputError(f"{file.source}: workdir: expected a folder from the root on, found {workdir!r:.80}")
    folder = str(PurePosixPath(cwd or "/", workdir)) if workdir else cwd
    try:
        return refuse_controls(folder)
    except ParseError as error:
        raise InputError(f"{file.source}: workdir: {error}") from error


def _find_firsts(jobs: Iterable[JobSpec]) -> tuple[JobId, ...]:
    return tuple(dict.fromkeys(job.id if job.array is None else job.array.array for job in jobs))
