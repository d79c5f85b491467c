"""What each metric means, in one place: the documentation, the report and the screen all quote this table.

A metric is added by one row here and one field of `clearway.sim.metrics.Metrics`; a test holds the two together.
"""

from dataclasses import dataclass
from typing import Final

SLOWDOWN_FLOOR_S: Final = 10
"""Run times below this count as this much in the bounded slowdown, so that a job of a second that waits ten does not
outweigh all others. Ten seconds is the value of the literature (Feitelson 2001), and comparisons need the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDefinition:
    """One row. key: the name in code and in `--json`. label: short name for people. Both languages say the same."""

    key: str
    unit: str
    label: str
    label_zh: str
    definition: str
    definition_zh: str


def _row(key: str, unit: str, label: str, label_zh: str, definition: str, definition_zh: str) -> MetricDefinition:
    return MetricDefinition(
        key=key, unit=unit, label=label, label_zh=label_zh, definition=definition, definition_zh=definition_zh
    )


METRICS: Final = (
    _row(
        "jobs_total",
        "jobs",
        "Jobs",
        "作业数",
        "Jobs of the workload that were submitted; records left out while reading are listed apart.",
        "提交到调度器的作业数；读取时略去的记录另行列出。",
    ),
    _row(
        "jobs_started",
        "jobs",
        "Started",
        "已启动",
        "Jobs that started at least once.",
        "至少启动过一次的作业数。",
    ),
    _row(
        "jobs_finished",
        "jobs",
        "Finished",
        "已结束",
        "Jobs that started and ended for good, with any outcome: completed, failed, or cut at the time limit.",
        "已启动并最终结束的作业数，无论结果是完成、失败还是到达时限被终止。",
    ),
    _row(
        "wait_s",
        "s",
        "Wait",
        "等待时间",
        "From submission to the first start. Over jobs that started.",
        "从提交到首次启动的时间。统计已启动的作业。",
    ),
    _row(
        "latency_target_ratio",
        "ratio",
        "Started in time",
        "按时启动率",
        "Of the jobs with a latency target (`latency_target` in a job file), those whose wait was within it; one that "
        "never started is not in time. Null where no job has one.",
        "在设有延迟目标（作业文件中的 latency_target）的作业中，等待时间未超过目标的比例；从未启动的作业不算按时。"
        "没有作业设目标时为空。",
    ),
    _row(
        "queued_s",
        "s",
        "Time in queue",
        "排队总时间",
        "All waits of a job together: the first, and those after each preemption or failure. Over jobs that started.",
        "作业全部等待时间之和：首次等待以及每次被抢占或故障之后的等待。统计已启动的作业。",
    ),
    _row(
        "jct_s",
        "s",
        "Completion time (JCT)",
        "完成时间（JCT）",
        "Job completion time: from submission to the final end. Over finished jobs.",
        "作业完成时间：从提交到最终结束。统计已结束的作业。",
    ),
    _row(
        "bounded_slowdown",
        "1",
        "Bounded slowdown",
        "有界减速比",
        f"max(1, JCT / max(run time, {SLOWDOWN_FLOOR_S} s)), with the run time that the trace gives, cut at the limit. "
        "Over finished jobs. Feitelson, Metrics for parallel job scheduling and their convergence, JSSPP 2001.",
        f"max(1, JCT / max(运行时间, {SLOWDOWN_FLOOR_S} 秒))，运行时间取自轨迹并以时限截断。统计已结束的作业。"
        "来源：Feitelson，JSSPP 2001。",
    ),
    _row(
        "finish_time_fairness",
        "1",
        "Finish-time fairness ρ",
        "完成时间公平性 ρ",
        "ρ = JCT / T_alone, as in Themis (Mahajan et al., NSDI 2020); above 1 the job did worse than with a fair slice "
        "of its own. T_alone is approximated: N is the time-average number of jobs in the system between the job's "
        "submission and its end, its slice is the 1/N-th part of the cluster's devices, and in a slice smaller than "
        "what it asks for the job runs slower in proportion: T_alone = run time × max(1, N × devices / cluster). "
        "Over finished jobs.",
        "ρ = JCT / T_alone，取自 Themis（Mahajan 等，NSDI 2020）；大于 1 表示作业不如独占公平份额时快。"
        "T_alone 为近似值：N 是作业从提交到结束期间系统内作业数的时间平均，其份额为集群设备的 1/N；"
        "份额小于申请量时按比例变慢："
        "T_alone = 运行时间 × max(1, N × 设备数 / 集群设备数)。统计已结束的作业。",
    ),
    _row(
        "unfair_jobs_ratio",
        "ratio",
        "Jobs with ρ > 1",
        "ρ > 1 的作业占比",
        "Share of the finished jobs whose finish-time fairness ρ is above 1.",
        "已结束作业中完成时间公平性 ρ 大于 1 的比例。",
    ),
    _row(
        "jain_index",
        "ratio",
        "Jain index over tenants",
        "租户 Jain 指数",
        "(Σx)² / (n Σx²) over the n tenants with finished jobs, where x is the tenant's service ratio: run time over "
        "JCT, both summed over its finished jobs with the devices of each as weight. 1 = all were served alike, 1/n = "
        "one had everything. Jain, Chiu and Hawe, DEC-TR-301, 1984.",
        "(Σx)² / (n Σx²)，n 为有作业结束的租户数，x 为租户的服务比："
        "其已结束作业的运行时间之和除以 JCT 之和，均以设备数加权。"
        "1 表示一视同仁，1/n 表示一家独占。来源：Jain、Chiu、Hawe，DEC-TR-301，1984。",
    ),
    _row(
        "makespan_s",
        "s",
        "Makespan",
        "总完工时间",
        "From the first submission to the last end.",
        "从首次提交到最后一个作业结束的时间。",
    ),
    _row(
        "device_allocation_ratio",
        "ratio",
        "Allocation",
        "设备分配率",
        "Device-time held by jobs / device-time of healthy devices, both from the first submission to the last end.",
        "作业持有的设备时间 / 健康设备的总设备时间，均从首次提交计到最后结束。",
    ),
    _row(
        "effective_use_ratio",
        "ratio",
        "Effective use",
        "有效使用率",
        "Device-time that advanced work which was kept / device-time of healthy devices: allocation without start-up, "
        "checkpoints, restarts and work done again.",
        "推进了最终保留的工作的设备时间 / 健康设备的总设备时间：即分配率扣除启动、检查点、重启和重做的部分。",
    ),
    _row(
        "goodput_ratio",
        "ratio",
        "Goodput",
        "有效产出率",
        "Device-time that advanced work which was kept / device-time held by jobs.",
        "推进了最终保留的工作的设备时间 / 作业持有的设备时间。",
    ),
    _row(
        "fragmentation_ratio",
        "ratio",
        "Fragmentation",
        "碎片率",
        "Time-average of stranded devices / healthy devices. A device is stranded while it is free but the job at the "
        "head of the queue cannot use it where it is; nothing is stranded while nothing waits.",
        "滞留设备 / 健康设备的时间平均。空闲但队首作业无法就地使用的设备称为滞留设备；无作业等待时滞留为零。",
    ),
    _row(
        "preemptions",
        "count",
        "Preemptions",
        "抢占次数",
        "Times that a running job had to leave its devices for another.",
        "运行中的作业为其他作业让出设备的次数。",
    ),
    _row(
        "restarts",
        "count",
        "Restarts",
        "重启次数",
        "Starts of a job after its first, for any reason.",
        "作业首次启动之后的再次启动次数，不论原因。",
    ),
    _row(
        "held_device_s",
        "device-s",
        "Held device time",
        "持有设备时间",
        "Device-seconds that jobs held, over all their starts.",
        "作业历次启动持有的设备秒数之和。",
    ),
    _row(
        "lost_device_s",
        "device-s",
        "Lost device time",
        "损失设备时间",
        "Of the held device-seconds: work done again after a preemption or a failure, restarts and checkpoints.",
        "持有设备秒数中因抢占或故障而重做的工作以及重启和检查点所占的部分。",
    ),
)
"""All metrics, in the order in which they are shown."""


def render_metrics_doc() -> str:
    """The text of docs/METRICS.md."""
    rows = "\n".join(f"| `{row.key}` | {row.label} | {row.unit} | {row.definition} |" for row in METRICS)
    return f"""# Metrics

Generated from `clearway.sim.metric_definitions`; change the table there.

| key | name | unit | definition |
|---|---|---|---|
{rows}

Mean, p50, p90, p99 and max are over jobs, each job once. Percentiles interpolate linearly between the two nearest order
statistics (type 7 of Hyndman and Fan 1996, NumPy's default). A statistic over no job at all is null, never 0.

Sizes are devices asked for (replicas × devices × share), in buckets. Groups by kind, size, tenant and queue use the
same definitions over the jobs of the group.
"""
