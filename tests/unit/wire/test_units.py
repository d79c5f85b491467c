"""The units of every dialect, and what is said about a value that does not parse."""

import pytest

from clearway.model.errors import InputError
from clearway.model.units import DAY_MS, GIB, HOUR_MS, KIB, MIB, MINUTE_MS, SECOND_MS
from clearway.wire.units import (
    AMOUNT_MAX,
    DeviceRequest,
    describe_time,
    parse_count,
    parse_cpus,
    parse_cpus_minimum,
    parse_devices,
    parse_duration,
    parse_kubernetes_cpu,
    parse_kubernetes_memory,
    parse_memory,
    parse_memory_minimum,
    parse_milli,
    parse_power,
    parse_share,
    parse_slurm_memory,
    parse_slurm_time,
    parse_time_span,
    render_kubernetes_cpu,
    render_kubernetes_memory,
    render_memory,
    render_slurm_memory,
    render_slurm_time,
    round_up_to_minutes,
)


def test_thirty_colon_zero_is_thirty_minutes():
    assert parse_slurm_time("30:00") == 30 * MINUTE_MS


def test_two_dash_twelve_is_sixty_hours():
    assert parse_slurm_time("2-12") == 60 * HOUR_MS


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("30", 30 * MINUTE_MS),
        (30, 30 * MINUTE_MS),
        ("0:30", 30 * SECOND_MS),
        ("1:02:03", HOUR_MS + 2 * MINUTE_MS + 3 * SECOND_MS),
        ("1-0", DAY_MS),
        ("1-2:30", DAY_MS + 2 * HOUR_MS + 30 * MINUTE_MS),
        ("1-2:30:05", DAY_MS + 2 * HOUR_MS + 30 * MINUTE_MS + 5 * SECOND_MS),
        ("90:00", 90 * MINUTE_MS),
        (" 10 ", 10 * MINUTE_MS),
    ],
)
def test_every_form_of_slurm_time_is_read(text, time_ms):
    assert parse_slurm_time(text) == time_ms


@pytest.mark.parametrize("text", ["0", "0:00", "UNLIMITED", "unlimited", "INFINITE", "-1"])
def test_zero_and_unlimited_mean_no_limit(text):
    assert parse_slurm_time(text) is None


@pytest.mark.parametrize("text", ["", "1h", "1:2:3:4", "-5", "1-", "30:", ":30", "1.5", "٣٠", "9" * 70, True, 1.5])
def test_a_time_that_slurm_does_not_know_is_an_error_and_never_unlimited(text):
    with pytest.raises(InputError, match=r"expected a time as Slurm writes it .*, found"):
        parse_slurm_time(text)


def test_slurm_time_is_rendered_in_days_and_clock():
    assert render_slurm_time(60 * HOUR_MS) == "2-12:00:00"
    assert render_slurm_time(90 * MINUTE_MS + 1) == "01:30:01"
    assert render_slurm_time(None) == "UNLIMITED"


def test_limits_round_up_to_minutes():
    assert round_up_to_minutes(61 * SECOND_MS) == 2 * MINUTE_MS
    assert round_up_to_minutes(2 * MINUTE_MS) == 2 * MINUTE_MS


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("90s", 90 * SECOND_MS),
        ("15m", 15 * MINUTE_MS),
        ("2h30m", 150 * MINUTE_MS),
        ("2h 30m", 150 * MINUTE_MS),
        ("1d", DAY_MS),
        ("1w", 7 * DAY_MS),
        ("1.5 hours", 90 * MINUTE_MS),
        ("250ms", 250),
        ("0.0001s", 1),
    ],
)
def test_durations_are_read_with_their_units(text, time_ms):
    assert parse_duration(text) == time_ms


@pytest.mark.parametrize("text", ["5", "5q", "5m5m", "30m2h", "5M", "m", "5 m x", "-5m", ""])
def test_a_bad_unit_is_an_error(text):
    with pytest.raises(InputError, match=r"expected a duration with units.*, found"):
        parse_duration(text)


def test_a_bare_number_of_a_job_file_is_refused_with_both_readings():
    with pytest.raises(InputError, match="write 30m or 30s"):
        parse_time_span(30)


def test_a_job_file_takes_both_slurm_times_and_durations():
    assert parse_time_span("30:00") == parse_time_span("30m") == 30 * MINUTE_MS
    assert parse_time_span("2-12") == 60 * HOUR_MS
    assert parse_time_span(0) is None
    assert parse_time_span("unlimited") is None


def test_times_are_told_in_words():
    assert describe_time(60 * HOUR_MS) == "2 days 12 hours"
    assert describe_time(MINUTE_MS + 1) == "1 minute 1 millisecond"
    assert describe_time(None) == "no limit"
    assert describe_time(0) == "0 seconds"


def test_512k_is_not_nothing():
    assert parse_slurm_memory("512K") == 512 * KIB


@pytest.mark.parametrize(
    ("text", "size"),
    [("100", 100 * MIB), (100, 100 * MIB), ("4G", 4 * GIB), ("4gb", 4 * GIB), ("1T", 1024 * GIB), ("0", 0)],
)
def test_slurm_memory_is_mebibytes_and_1024_based(text, size):
    assert parse_slurm_memory(text) == size


@pytest.mark.parametrize("text", ["4Q", "1.5G", "G", "-1", "4 G", "4GiB", ""])
def test_memory_that_slurm_does_not_know_is_an_error(text):
    with pytest.raises(InputError, match="expected a whole number with K, M, G, T or P"):
        parse_slurm_memory(text)


def test_slurm_memory_is_rendered_without_loss_or_rounded_up():
    assert render_slurm_memory(3 * GIB) == "3G"
    assert render_slurm_memory(1536 * MIB) == "1536M"
    assert render_slurm_memory(1) == "1K"
    assert render_slurm_memory(0) == "0K"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1M", 10**6),
        ("1Mi", MIB),
        ("1.5Gi", 1536 * MIB),
        ("1k", 1000),
        ("128e6", 128 * 10**6),
        ("1E", 10**18),
        ("100m", 1),
        ("64", 64),
    ],
)
def test_kubernetes_memory_tells_decimal_from_binary(text, size):
    assert parse_kubernetes_memory(text) == size


@pytest.mark.parametrize(("text", "cpu_milli"), [("500m", 500), ("2", 2000), ("0.1", 100), (2, 2000), ("1u", 1)])
def test_kubernetes_cpus_are_thousandths_rounded_up(text, cpu_milli):
    assert parse_kubernetes_cpu(text) == cpu_milli


@pytest.mark.parametrize("text", ["1KB", "1K", "1GiB", "-1", "1e", "e3", "1 Gi", "1e99", ".", True])
def test_a_quantity_that_kubernetes_does_not_know_is_an_error(text):
    with pytest.raises(InputError, match="expected a Kubernetes quantity"):
        parse_kubernetes_memory(text)


def test_kubernetes_quantities_are_rendered():
    assert render_kubernetes_cpu(2000) == "2"
    assert render_kubernetes_cpu(1500) == "1500m"
    assert render_kubernetes_memory(64 * GIB) == "64Gi"
    assert render_kubernetes_memory(1000) == "1000"


def test_job_file_memory_is_1024_based_whatever_the_spelling():
    assert {parse_memory(text) for text in ("64GB", "64G", "64GiB", "64Gi", "64 gb")} == {64 * GIB}
    assert parse_memory("1.5TiB") == 1536 * GIB
    assert parse_memory("0.3B") == 1
    assert render_memory(64 * GIB) == "64GiB"


def test_job_file_memory_without_a_unit_is_an_error_with_a_hint():
    with pytest.raises(InputError, match="write 64GB or 64MB"):
        parse_memory(64)


def test_sizes_of_skypilot_and_dstack_that_are_open_above_are_minima():
    assert [parse_memory_minimum(text) for text in ("32+", "32GB+", "32GB..", "32GB")] == [32 * GIB] * 4
    assert parse_memory_minimum("512MB+") == 512 * MIB
    assert [parse_cpus_minimum(value) for value in ("4+", "4..", "4", 4, "4000m")] == [4000] * 5


@pytest.mark.parametrize("parse", [parse_memory_minimum, parse_cpus_minimum])
@pytest.mark.parametrize("text", ["..", "+", "..40GB", "24GB..40GB", "1..8", "40++", "40+.."])
def test_upper_bounds_and_half_sizes_are_errors(parse, text):
    with pytest.raises(InputError):
        parse(text)


def test_a_size_without_a_unit_stays_an_error_where_nothing_says_whose_it_is():
    with pytest.raises(InputError, match="write 32GB or 32MB"):
        parse_memory_minimum("32..")


def test_shares_are_exact_thousandths():
    assert parse_share(0.4) + parse_share(0.4) == 800
    assert parse_share("40%") == 400
    assert parse_share("0.3335") == 334
    assert parse_share(1) == 1000


@pytest.mark.parametrize("value", [0, 1.001, "150%", "half", -0.4, float("nan"), float("inf"), True])
def test_a_share_outside_of_one_device_is_an_error(value):
    with pytest.raises(InputError, match="expected a share of one device"):
        parse_share(value)


@pytest.mark.parametrize(
    ("value", "request_"),
    [
        (8, DeviceRequest(8)),
        ("H100:8", DeviceRequest(8, "H100")),
        ("H100 :8", DeviceRequest(8, "H100")),
        ("A100:40GB:2", DeviceRequest(2, "A100", 40 * GIB)),
        ("A100:2:40GB", DeviceRequest(2, "A100", 40 * GIB)),
        ("H100", DeviceRequest(1, "H100")),
        (0, DeviceRequest(0)),
    ],
)
def test_devices_are_read_in_the_forms_of_sky_and_dstack(value, request_):
    assert parse_devices(value) == request_


@pytest.mark.parametrize("value", ["one", "Two", "all", "half:2", "none", "two gpus", "a lot", "all GPUs", "gpus:2"])
def test_words_for_a_count_are_no_models(value):
    with pytest.raises(InputError, match="write the count in digits"):
        parse_devices(value)


@pytest.mark.parametrize("value", ["H100:8:9", "8:H100", "", ":8", "H100:", True, 1.5])
def test_devices_that_say_two_things_are_an_error(value):
    with pytest.raises(InputError, match="expected a number of devices"):
        parse_devices(value)


def test_power_is_watts():
    assert [parse_power(value) for value in (700, "700W", "1.2kW", "2MW")] == [700, 700, 1200, 2_000_000]
    with pytest.raises(InputError, match="units: W, kW, MW"):
        parse_power("2M")


def test_counts_cpus_and_quotas_are_read():
    assert parse_count("12") == 12
    assert parse_cpus("500m") == parse_cpus(0.5) == 500
    assert parse_milli(0.5) == 500
    for parser in (parse_count, parse_cpus, parse_milli):
        with pytest.raises(InputError):
            parser("many")


def test_an_amount_too_large_to_be_kept_is_an_error():
    with pytest.raises(InputError, match=str(AMOUNT_MAX)):
        parse_slurm_memory("99999999999P")
    with pytest.raises(InputError):
        parse_count(1 << 70)
