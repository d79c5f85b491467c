"""Routes of jobs: submit, list, look at, change."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Annotated, Final

from fastapi import Path, Query, Request, Response

from clearway.model.ids import JobId, TenantName
from clearway.model.plan import Explanation
from clearway.model.runs import RunSpec
from clearway.ports.control import PROVISIONAL_ID, Submission
from clearway.ports.storage import JobQuery
from clearway.ports.views import JobState, JobView
from clearway.server.access import Reach
from clearway.server.problems import Refusal
from clearway.server.routing import PROBLEMS, dump_json, json_response, make_router, row_response
from clearway.server.services import Services, services_of
from clearway.server.shown import jobs_in, show_explanation
from clearway.server.submissions import (
    Parsed,
    check_names,
    named_jobs,
    named_tasks,
    note_models,
    parse_submission,
)
from clearway.wire.api import API, JobCounts, JobIds, JobPage, SubmitRequest, Submitted
from clearway.wire.api_requests import JOB_ID_MAX, JobIdsModel, JobParams, SubmitModel, SubmitParams
from clearway.wire.api_rows import encode_row, encode_rows, field_names
from clearway.wire.jobfile import JOBS_MAX
from clearway.wire.problems import list_names, suggest_name

router = make_router()

JobNumber = Annotated[int, Path(ge=1, le=JOB_ID_MAX, description="The job's number.")]

FIELDS: Final = field_names(JobView)

Change = Callable[..., "Future[tuple[JobId, ...]]"]


# --- submit -----------------------------------------------------------------------------------------------------------


@router.post(f"{API}/jobs", response_model=Submitted, responses=PROBLEMS, tags=["jobs"], status_code=201)
async def submit_jobs(request: Request, body: SubmitModel, params: Annotated[SubmitParams, Query()]) -> Response:
    """Submit job files or batch scripts: all of their jobs are accepted, or none.

    The answer (201) means that they are on disk. `test_only` says what would be done (200), and does nothing.
    """
    services = services_of(request)
    reach = await services.reach(request)
    parsed = await _parse(services, body.to_request(), reach)
    await _check_dependencies(services, parsed, reach)
    if any(job.request.device_models for job in parsed.jobs):
        lines = note_models(parsed.jobs, await services.read(services.control.cluster))
        parsed = replace(parsed, notes=(*parsed.notes, *lines))
    if params.test_only:
        await _check_accepted(services, parsed)
        check_names(parsed.jobs, await services.read(services.control.cluster))
        numbers = tuple(JobId(1 + place) for place in range(len(parsed.jobs)))
        return row_response(_describe(parsed, numbers, is_test=True))
    submission = Submission(jobs=parsed.jobs, runs=parsed.runs, actor=reach.identity.user, key=body.key)
    numbers = await services.answer(services.control.submit(submission))
    return json_response(encode_row(_describe(parsed, numbers, is_test=False)), 201)


async def _parse(services: Services, asked: SubmitRequest, reach: Reach) -> Parsed:
    try:
        now_ms, shape = services.now_ms(), services.shape
        return await services.parse(lambda: parse_submission(asked, reach, now_ms=now_ms, shape=shape))
    except Refusal as refusal:
        raise services.refuse(reach.identity, "jobs.submit", "tenant", refusal.status, str(refusal)) from refusal


def _describe(parsed: Parsed, numbers: tuple[JobId, ...], *, is_test: bool) -> Submitted:
    firsts = tuple(numbers[first - PROVISIONAL_ID] for first in parsed.firsts)
    return Submitted(jobs=numbers, firsts=firsts, notes=parsed.notes, is_test=is_test)


async def _check_dependencies(services: Services, parsed: Parsed, reach: Reach) -> None:
    """A job may wait only for jobs that its submitter may see: else it would tell him when others' end."""
    named = named_jobs(parsed.jobs)
    if reach.tenants is None or not named:
        return
    seen = await services.seen_among(reach, named)
    missing = [job for job in named if not seen(job)]
    if missing:
        detail = f"depends_on: expected jobs that you may see, found {', '.join(map(str, missing[:10]))}"
        raise services.refuse(reach.identity, "jobs.submit", f"job {missing[0]}", 422, detail)


async def _check_accepted(services: Services, parsed: Parsed) -> None:
    """What accepting a job would refuse, for those that are only tried: a dependency on a number, or on a task,
    that there is not."""
    named = named_jobs(parsed.jobs)
    there = {row.id for row in await services.find_jobs(named)}
    missing = next((job for job in named if job not in there), None)
    if missing is not None:
        raise Refusal(422, f"expected a job that was accepted, found a dependency on {missing}")
    for array, task in named_tasks(parsed.jobs):
        rows = await services.read(services.reader.find_jobs, JobQuery(array=array, limit=JOBS_MAX))
        if all(row.array_index != task for row in rows):
            raise Refusal(422, f"expected a task that array {array} has, found a dependency on {array}_{task}")


# --- look -------------------------------------------------------------------------------------------------------------


@router.get(f"{API}/jobs", response_model=JobPage, responses=PROBLEMS, tags=["jobs"])
async def list_jobs(request: Request, params: Annotated[JobParams, Query()]) -> Response:
    """Jobs that fit all filters, by number. `next_after` is the `after` of the next page; null where there is none.

    With `fields`, each row holds only these.
    """
    services = services_of(request)
    fields = _check_fields(params.fields)
    query = _narrow(params, await services.reach(request))
    body = b'{"jobs":[],"next_after":null}'
    if query is not None:
        body = await services.read(_read_page, services, query, fields)
    return Response(body, media_type="application/json")


@router.get(f"{API}/jobs/counts", response_model=JobCounts, responses=PROBLEMS, tags=["jobs"])
async def count_jobs(request: Request, params: Annotated[JobParams, Query()]) -> Response:
    """How many jobs fit all filters, by state; `after` and `limit` are not regarded."""
    services = services_of(request)
    query = _narrow(params, await services.reach(request))
    counts = {} if query is None else await services.read(services.reader.count_jobs, query)
    return row_response(JobCounts(counts={state: count for state, count in counts.items() if count}))


@router.get(f"{API}/jobs/{{job}}", response_model=JobView, responses=PROBLEMS, tags=["jobs"])
async def get_job(request: Request, job: JobNumber) -> Response:
    """One job as it is now."""
    view, _ = await services_of(request).visible_job(request, job, "jobs.read")
    return row_response(view)


@router.get(f"{API}/jobs/{{job}}/run", response_model=RunSpec, responses=PROBLEMS, tags=["jobs"])
async def get_run(request: Request, job: JobNumber) -> Response:
    """How a job is run: script, environment, files. For its user, administrators of its tenant, and operators."""
    services = services_of(request)
    view = await services.touchable_job(request, job, "runs.read")
    run = await services.read(services.reader.read_run, view.id)
    if run is None:
        raise Refusal(404, f"job {job}: expected to find how it is run, found nothing")
    return row_response(run)


@router.get(f"{API}/jobs/{{job}}/why", response_model=Explanation, responses=PROBLEMS, tags=["jobs"])
async def explain_job(request: Request, job: JobNumber) -> Response:
    """All the reasons why a job waits, the jobs in its way, and the cheapest fix. 422 for a job that has ended."""
    services = services_of(request)
    view, reach = await services.visible_job(request, job, "jobs.read")
    explanation = await services.answer(services.control.explain(view.id))
    seen = await services.seen_among(reach, jobs_in(explanation))
    return row_response(show_explanation(explanation, seen))


def _check_fields(fields: list[str]) -> tuple[str, ...]:
    """Names of fields, given one by one or joined by commas."""
    names = tuple(dict.fromkeys(name for part in fields for name in part.split(",") if name))
    for name in names:
        if name not in FIELDS:
            raise Refusal(
                422,
                f"fields: expected fields of a job ({list_names(FIELDS)}), found {name!r:.80}; "
                f"{suggest_name(name, FIELDS) or 'see the OpenAPI description'}",
            )
    return names


def _narrow(params: JobParams, reach: Reach) -> JobQuery | None:
    """The query, over tenants that the caller sees; None = it finds nothing."""
    tenants = reach.narrow(TenantName(name) for name in params.tenant)
    if tenants is None:
        return None
    return JobQuery(
        ids=tuple(JobId(number) for number in dict.fromkeys(params.id)),
        states=tuple(dict.fromkeys(params.state)),
        users=tuple(dict.fromkeys(params.user)),
        tenants=tenants,
        queues=tuple(dict.fromkeys(params.queue)),
        names=tuple(dict.fromkeys(params.name)),
        array=None if params.array is None else JobId(params.array),
        submitted_from_ms=params.submitted_from_ms,
        submitted_to_ms=params.submitted_to_ms,
        after=None if params.after is None else JobId(params.after),
        newest_first=params.newest_first,
        limit=params.limit,
    )


def _read_page(services: Services, query: JobQuery, fields: tuple[str, ...]) -> bytes:
    """One page as JSON, in a reader's thread."""
    rows = services.reader.find_jobs(query)
    if not fields or "order_priority" in fields:
        rows = _with_priorities(services, rows)
    next_after = rows[-1].id if len(rows) == query.limit else None
    return dump_json({"jobs": encode_rows(rows, fields), "next_after": next_after})


def _with_priorities(services: Services, rows: Sequence[JobView]) -> tuple[JobView, ...]:
    """The rows, those that wait with what the order makes of them now."""
    known = services.control.priorities(row.id for row in rows if row.state is JobState.PENDING)
    return tuple(replace(row, order_priority=known[row.id]) if row.id in known else row for row in rows)


# --- change -----------------------------------------------------------------------------------------------------------


@router.post(f"{API}/jobs/cancel", response_model=JobIds, responses=PROBLEMS, tags=["jobs"])
async def cancel_jobs(request: Request, body: JobIdsModel) -> Response:
    """Take jobs back, running or not, all or none; the answer is those that had not ended yet."""
    return await _change(request, body, "jobs.cancel", services_of(request).control.cancel)


@router.post(f"{API}/jobs/hold", response_model=JobIds, responses=PROBLEMS, tags=["jobs"])
async def hold_jobs(request: Request, body: JobIdsModel) -> Response:
    """Waiting jobs must not start until released."""
    return await _change(request, body, "jobs.hold", services_of(request).control.hold)


@router.post(f"{API}/jobs/release", response_model=JobIds, responses=PROBLEMS, tags=["jobs"])
async def release_jobs(request: Request, body: JobIdsModel) -> Response:
    """Held jobs may start again."""
    return await _change(request, body, "jobs.release", services_of(request).control.release)


@router.post(f"{API}/jobs/requeue", response_model=JobIds, responses=PROBLEMS, tags=["jobs"])
async def requeue_jobs(request: Request, body: JobIdsModel) -> Response:
    """Running jobs leave their devices and wait again."""
    return await _change(request, body, "jobs.requeue", services_of(request).control.requeue)


@router.delete(f"{API}/jobs/{{job}}", response_model=JobIds, responses=PROBLEMS, tags=["jobs"])
async def delete_job(request: Request, job: JobNumber) -> Response:
    """Take one job back, running or not; the answer is empty where it had ended."""
    services = services_of(request)
    view = await services.touchable_job(request, job, "jobs.cancel")
    actor = request.scope["clearway.identity"].user
    done = await services.answer(services.control.cancel((view.id,), actor=actor))
    return row_response(JobIds(jobs=done))


async def _change(request: Request, body: JobIdsModel, action: str, change: Change) -> Response:
    services, jobs = services_of(request), body.to_ids()
    identity = await services.check_touchable(request, jobs, action)
    return row_response(JobIds(jobs=await services.answer(change(jobs, actor=identity.user))))
