"""Charts with their words inside."""

import re

import pytest

from rocketwire.pages.charts import NARROW, Band, Line, line_plot


def test_a_plot_escapes_what_it_is_given():
    plot = line_plot(
        "a <b>", [Line("<i>", "ours", [(0.0, 1.0)])], seconds=1.0, bands=[Band("&", 0, 1)]
    )
    assert "a &lt;b&gt;" in plot
    assert "&lt;i&gt;" in plot
    assert ">&amp;<" in plot


def test_a_plot_without_points_is_a_plot():
    assert line_plot("empty", [Line("x", "ours", [])], seconds=1.0, logarithmic=True).endswith(
        "</svg>"
    )


@pytest.mark.parametrize(
    ("highest", "labels"),
    [(200, ["0", "50", "100", "150", "200", "250"]), (140, ["0", "50", "100", "150"])],
)
def test_an_axis_has_round_numbers(highest, labels):
    plot = line_plot("x", [Line("x", "ours", [(0.0, highest)])], seconds=1.0)
    assert re.findall(r'text-anchor="end">([^<]*)<', plot) == labels


def test_a_narrow_plot_keeps_names_within_its_width_and_apart():
    bands = [Band("broker-b slow, +300 ms", 2, 16), Band("broker-c frozen, then killed", 14, 16)]
    lines = [Line("plain client, p99", "plain", [(0.0, 1.0)]), Line("ours", "ours", [(0.0, 1.0)])]
    plot = line_plot("x", lines, seconds=16.0, bands=bands, width=NARROW)
    names = re.findall(r'class="band-name" x="([0-9.]+)"( text-anchor="end")? y="(\d+)"', plot)
    assert [bool(end) for _, end, _ in names] == [False, True]
    assert names[1][0] == str(NARROW)
    assert names[0][2] != names[1][2]
    legend = re.findall(r'<text x="(\d+)" y="(\d+)">(plain client, p99|ours)<', plot)
    assert {y for _, y, _ in legend} == {"30"}
    assert int(legend[0][0]) + 7 * len("plain client, p99") < int(legend[1][0])


def test_a_chart_that_stands_alone_brings_both_colour_schemes():
    alone = line_plot("x", [Line("x", "ours", [(0.0, 1.0)])], seconds=1.0, standalone=True)
    assert "prefers-color-scheme: dark" in alone
    assert "var(" not in alone, "not every viewer of pictures knows variables"
    assert re.findall("%|None", alone.split("<style>")[1].split("</style>")[0]) == []
