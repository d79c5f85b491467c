"""Selectors of devices in CEL: what is evaluated, what is an error, and what is refused."""

import pytest

from clearway.adapters.kubernetes.cel import Device, Quantity, Version, compile_selector
from clearway.adapters.kubernetes.errors import UnsupportedError

DEVICE = Device(
    "gpu.example.com",
    {
        "gpu.example.com": {"productName": "NVIDIA-H100", "index": 3, "healthy": True, "version": Version((12, 4, 0))},
        "other.example.com": {"rail": "a"},
    },
    {"gpu.example.com": {"memory": Quantity(80 << 30)}},
)


@pytest.mark.parametrize(
    "text",
    [
        'device.driver == "gpu.example.com"',
        "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].healthy",
        'device.attributes["gpu.example.com"].productName.lowerAscii().startsWith("nvidia")',
        'device.attributes["gpu.example.com"]["productName"] in ["NVIDIA-A100", "NVIDIA-H100"]',
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
        'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("79Gi"))',
        'device.attributes["gpu.example.com"].version.isLessThan(semver("12.5.0"))',
        'device.attributes["gpu.example.com"].version.major() == 12',
        '!has(device.attributes["gpu.example.com"].nothing) && device.attributes["gpu.example.com"].index > -1',
        '"rail" in device.attributes["other.example.com"] && !("rail" in device.attributes["none.example.com"])',
        'device.attributes["gpu.example.com"].nothing == 1 || device.attributes["gpu.example.com"].index == 3',
        'cel.bind(gpu, device.attributes["gpu.example.com"], gpu.index == 3 && gpu.productName.contains("H1"))',
        'device.attributes["gpu.example.com"].productName != "x" && (false || true)',
    ],
)
def test_device_is_chosen(text):
    assert compile_selector(text)(DEVICE)


@pytest.mark.parametrize(
    "text",
    [
        'device.driver == "other"',
        'device.attributes["gpu.example.com"].nothing == "x"',
        '!(device.attributes["gpu.example.com"].nothing == "x")',
        'device.attributes["gpu.example.com"].index > "2"',
        'device.attributes["gpu.example.com"].productName',
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("no")) >= 0',
        'device.attributes["gpu.example.com"].index == true',
        "nobody == 1",
        "device.attributes[[1]] == 1",
        'device.attributes["gpu.example.com"][[1]] == 1',
        '[1] in device.attributes["gpu.example.com"]',
        f'semver("{"1" * 5_000}.0.0").major() == 1',
        "cel.bind(a, [1, 2, 3, 4], cel.bind(b, [a, a, a, a], cel.bind(c, [b, b, b, b], cel.bind(d, [c, c, c, c], "
        "cel.bind(e, [d, d, d, d], e == e)))))",
    ],
)
def test_device_is_not_chosen_where_the_selector_is_false_or_an_error(text):
    assert not compile_selector(text)(DEVICE)


@pytest.mark.parametrize(
    "text",
    [
        'device.driver.matches("(a+)+$")',
        "device.attributes.all(one, true)",
        "1 + 1 == 2",
        'device.driver == "open',
        "device.driver ==",
        "(" * 200 + "true" + ")" * 200,
        "!" * 5_000 + "true",
        " || ".join(["false"] * 2_000),
        "device" + ".a" * 4_000,
        "1" * 5_000 + " == 1",
        "cel.block([1], 2)",
        "true ? true : false",
        "",
    ],
)
def test_what_is_beyond_is_refused_and_named(text):
    with pytest.raises(UnsupportedError, match="CEL"):
        compile_selector(text)


def test_longest_chains_that_are_taken_are_evaluated():
    assert compile_selector(" || ".join(["false"] * 499 + ["true"]))(DEVICE)
    assert not compile_selector("device" + ".a" * 499)(DEVICE)


def test_refusal_of_a_long_selector_is_short_enough_for_a_pod_s_condition():
    with pytest.raises(UnsupportedError) as caught:
        compile_selector(" || ".join(["false"] * 2_000))
    assert len(str(caught.value)) < 500
    assert "more than 1000 words" in str(caught.value)
