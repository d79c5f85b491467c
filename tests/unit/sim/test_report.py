"""The report page and its picture: what stands in them, that they need nothing else, that no name breaks them."""

import importlib
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from clearway.model.errors import MissingExtraError
from clearway.sim.metrics import METRICS, compute_metrics
from clearway.sim.report import ReportRun, write_overview_png, write_report
from clearway.sim.report.canvas import DARK_PALETTE, DASHES, LIGHT_PALETTE, MARKERS, PALETTE_SIZE, cut_name
from clearway.sim.report.curves import CDF_POINTS, TIME_POINTS, bin_over_time, distribution
from clearway.sim.report.numbers import (
    MISSING,
    render_bytes,
    render_duration,
    render_gap,
    render_number,
    render_ratio,
)
from clearway.sim.report.page import LEGEND_DASHES, LEGEND_MARKERS, render_report
from clearway.sim.report.runs import label_runs
from clearway.sim.report.tables import make_comparison
from clearway.sim.report.texts import CHINESE, ENGLISH
from support.results import (
    BUSY_POLICIES,
    make_busy_bounds,
    make_busy_result,
    make_columns,
    make_result,
    make_series,
)

VOID_TAGS = {"meta", "br", "img", "link"}
WHITE, NIGHT = "#ffffff", "#0f1419"


def make_run(policy=BUSY_POLICIES[0], *, count=900, bounded=True):
    result = make_busy_result(3, policy, count=count, devices=32)
    return ReportRun(result, compute_metrics(result), make_busy_bounds(result, devices=32) if bounded else None)


@pytest.fixture(scope="module")
def runs():
    return tuple(make_run(policy) for policy in BUSY_POLICIES)


@pytest.fixture(scope="module")
def page(runs):
    return render_report(runs, title="Monday <b>& co</b>")


class _Balance(HTMLParser):
    """Notes every closing tag that does not match the last open one."""

    def __init__(self):
        super().__init__()
        self.open, self.wrong = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append((tag, self.getpos()))


def test_page_is_well_formed(page):
    checker = _Balance()
    checker.feed(page)
    assert (checker.open, checker.wrong) == ([], [])


def test_page_loads_nothing_from_elsewhere(page):
    assert "<script" not in page
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"', page)
    assert not re.findall(r"url\((?!#)", page)
    assert "@import" not in page


def test_names_are_escaped_everywhere(page):
    assert "Monday &lt;b&gt;&amp; co&lt;/b&gt;" in page
    assert "<ops" not in page
    assert page.count("&lt;ops &amp; infra&gt;") >= len(BUSY_POLICIES)


def test_every_drawing_takes_its_colours_from_the_page(page):
    assert not re.findall(r"#0102[0-9a-f]{2}", page)
    assert all(f"var(--policy-{index})" in page for index in range(len(BUSY_POLICIES)))


def test_ids_of_drawings_do_not_collide(page):
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', page)) <= {(name, "") for name in ids} | {
        ("", name) for name in ids
    }


def test_page_defines_every_metric(page):
    assert all(row.definition.split("<")[0][:40].replace("&", "&amp;") in page for row in METRICS if ">" not in row.key)


def test_page_has_a_drawing_for_each_section(page):
    assert page.count("<figure>") == 7
    for key in ("utilisation", "wait", "jct", "queue", "fairness", "fragmentation", "losses"):
        assert f'aria-label="{ENGLISH[key + "_title"]}"' in page


def test_same_runs_give_the_same_page(runs, page):
    assert render_report(runs, title="Monday <b>& co</b>") == page


def test_chinese_page_has_no_english_headings(runs, tmp_path):
    write_report(tmp_path / "report.html", runs[:1], title="周一", language="zh")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<html lang="zh-CN">' in page
    headings = re.findall(r"<h2>([^<]+)</h2>", page)
    assert len(headings) >= 10
    assert not set(headings) & set(ENGLISH.values())


def test_both_languages_have_the_same_words():
    assert list(ENGLISH) == list(CHINESE)
    assert all(ENGLISH.values())
    assert all(CHINESE.values())


def test_page_stays_small_for_many_jobs():
    rows = 200_000
    time = np.arange(rows) * 1_000
    jobs = make_columns(rows, submit_ms=time, start_ms=time + 500, end_ms=time + 9_000)
    result = make_result(jobs, series=make_series(time_ms=time, allocated_milli=(time // 7) % 4_000))
    page = render_report([ReportRun(result, compute_metrics(result))], title="many")
    assert len(page) < 400_000


def test_run_in_which_nothing_happened_can_be_reported():
    result = make_result(make_columns(2))
    page = render_report([ReportRun(result, compute_metrics(result))], title="idle")
    assert MISSING in page
    assert "nan" not in re.sub(r"<[^>]+>", " ", page).lower().split()


def test_comparison_marks_the_best_and_shows_gaps(runs):
    table = make_comparison(runs, label_runs(runs), ENGLISH)
    lines = {row[0].text: row[1:] for row in table.rows}
    waits = [run.metrics.wait_s.mean for run in runs]
    assert [cell.is_best for cell in lines["Wait, mean"][:-1]] == [wait == min(waits) for wait in waits]
    assert all(cell.gap.endswith(" %") for cell in lines["JCT, mean"][:-1])
    assert lines["JCT, mean"][-1].text == render_duration(runs[0].bounds.jct_mean_s)
    assert lines["Wait, mean"][-1].text == ""


def test_runs_without_bounds_have_no_column_for_them():
    run = make_run(bounded=False)
    table = make_comparison([run], ["fifo"], ENGLISH)
    assert list(table.head) == ["", "fifo"]
    assert not any(cell.is_best or cell.gap for row in table.rows for cell in row)


def test_runs_of_one_policy_are_told_apart(runs):
    assert label_runs(runs) == ("fifo", "easy", "sjf", "clearway")
    assert label_runs((runs[0], runs[0])) == ("fifo, seed 7 #1", "fifo, seed 7 #2")


def test_overview_is_a_picture_of_the_size_of_a_page(runs, tmp_path):
    write_overview_png(tmp_path / "overview.png", runs)
    content = (tmp_path / "overview.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    width, height = (int.from_bytes(content[start : start + 4]) for start in (16, 20))
    assert (width, height) == (1600, 768)


def test_binning_over_time_keeps_the_integral():
    series = make_series(time_ms=(0, 100, 900), allocated_milli=[5, 0, 20])
    curve = bin_over_time(series, series.allocated_milli, 1_000)
    assert len(curve.x) == TIME_POINTS
    assert curve.y.mean() * 1_000 == pytest.approx(100 * 5 + 100 * 20)
    assert curve.y[0] == pytest.approx(5)
    assert curve.y[-1] == pytest.approx(20)


def test_distribution_is_thinned_and_keeps_both_ends():
    curve = distribution(np.arange(100_000.0))
    assert len(curve.x) == CDF_POINTS
    assert (curve.x[0], curve.x[-1], curve.y[-1]) == (0.0, 99_999.0, 1.0)
    assert curve.x[CDF_POINTS // 2] == pytest.approx(curve.y[CDF_POINTS // 2] * 100_000, rel=1e-4)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.08, "80 ms"), (5, "5.00 s"), (90, "1.50 min"), (7_200, "2.00 h"), (1_080_000, "12.5 d")],
)
def test_durations_have_three_figures_in_the_largest_unit(seconds, text):
    assert render_duration(seconds) == text


def test_numbers_are_written_for_people():
    assert render_number(1_234_567) == "1\u202f234\u202f567"
    assert render_number(27.04) == "27.0"
    assert render_ratio(0.825) == "82.5 %"
    assert render_bytes(180 << 20) == "180 MiB"
    assert render_ratio(float("nan")) == render_number(float("nan")) == render_duration(float("nan")) == MISSING
    assert [render_gap(gap) for gap in (0.12, 0.034, -0.02, None)] == ["+12 %", "+3.4 %", "−2.0 %", ""]
    assert render_gap(0.03, is_ratio=True) == "−3.0 pp"


def test_long_names_are_cut_in_drawings():
    assert cut_name("a" * 40) == "a" * 25 + "…"


def _luminance(colour):
    channels = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize(("palette", "paper"), [(LIGHT_PALETTE, WHITE), (DARK_PALETTE, NIGHT)])
def test_lines_stand_out_from_the_page(palette, paper):
    assert len(palette) == PALETTE_SIZE
    for colour in palette:
        lighter, darker = sorted([_luminance(colour), _luminance(paper)], reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 3.0, colour


def test_legend_shows_the_dashes_and_shapes_of_the_drawings():
    assert len(LEGEND_DASHES) == len(DASHES)
    assert len(LEGEND_MARKERS) == len(MARKERS)


def test_missing_library_says_what_to_install(monkeypatch):
    def refuse(module):
        raise ModuleNotFoundError(module)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(MissingExtraError, match=r'pip install "clearway\[twin\]"'):
        render_report([make_run(bounded=False)], title="none")
