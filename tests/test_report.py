import html.parser
import re

import matplotlib
import numpy as np
import pytest

from sciml import plot
from sciml.report import Report, number

NAMES = ["godunov", "muscl-mc", "dg2"]


def picture():
    return plot.bars({"a": 1.0, "b": 2.0}, label="error")


class Page(html.parser.HTMLParser):
    """Collects tags, and fails on a tag that is closed in the wrong order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def page(tmp_path):
    rows = [{"scheme": name, "mse": value} for name, value in zip(NAMES, [2e-4, 1e-5, np.nan], strict=True)]
    report = (
        Report("Laws & <schemes>", "1000 states")
        .heading("Table")
        .text("A **bold** `code` [link](metrics.json).\n\n- one\n- two <b>")
        .table(rows, caption="Means", highlight={"mse": "min"})
        .figure(picture(), "Caption", alt='A bar "chart"')
        .command("sciml fv solve a.toml > out")
    )
    return report.write(tmp_path / "report.html").read_text(encoding="utf-8")


def test_page_is_well_formed_and_self_contained(page):
    tags = Page(page).tags
    sources = [
        attrs.get("src") or attrs.get("href") for _, attrs in tags if "src" in attrs or "href" in attrs
    ]
    assert all(source.startswith("data:") or source == "metrics.json" for source in sources)
    assert not re.search(r"https?://|url\(|@import|<script", page)
    images = [attrs for tag, attrs in tags if tag == "img"]
    assert len(images) == 1 and all(image["alt"] for image in images)
    assert "prefers-color-scheme: dark" in page and 'name="viewport"' in page


def test_text_is_escaped_and_marked_up(page):
    assert "Laws &amp; &lt;schemes&gt;" in page and "two &lt;b&gt;" in page and "a.toml &gt; out" in page
    assert "<strong>bold</strong>" in page and "<code>code</code>" in page
    assert '<a href="metrics.json">link</a>' in page and "<li>one</li>" in page


def test_wide_things_scroll_in_their_own_box(page):
    for tag in ("table", "img"):
        assert re.search(rf'<div class="scroll" tabindex="0"><{tag}', page)


def test_the_best_value_is_marked_and_nan_never_is(page):
    assert re.findall(r"<td[^>]*><strong>([^<]*)</strong>", page) == ["1.000e-5"]
    assert "not finite" in page


def test_table_of_sequences_and_renamed_columns():
    text = Report("t").table([("a", 1, np.float32(0.5), None)], columns=("n", "i", "f", "none")).html()
    assert [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", text)] == [
        "a",
        "1",
        "0.5",
        "–",
    ]
    text = Report("t").table([{"a": 1, "b": 2}], columns={"b": "Bee"}).html()
    assert "Bee" in text and text.count("<td") == 1
    with pytest.raises(ValueError, match="needs `columns`"):
        Report("t").table([(1, 2)])


@pytest.mark.parametrize(
    "value, shown",
    [
        (0.0, "0"), (1.23456, "1.235"), (1.5e-7, "1.500e-7"), (2.5e10, "2.500e10"), (True, "True"),
        (-3, "-3"), (12345678, "12\u202f345\u202f678"), (float("inf"), "∞"), (np.int64(7), "7"), (None, "–"),
        ("x", "x"),
    ],
)  # fmt: skip
def test_number(value, shown):
    assert number(value) == shown


@pytest.mark.parametrize("bad", [b"GIF89a", "text of no file"])
def test_a_figure_that_is_none_is_refused(bad):
    with pytest.raises((ValueError, OSError)):
        Report("t").figure(bad, "caption", alt="alt")
    with pytest.raises(ValueError, match="alt"):
        Report("t").figure(picture(), "caption", alt=" ")


x, t = np.linspace(0, 1, 20), np.linspace(0, 2, 10)
field = np.sin(x)[None] * t[:, None]


@pytest.mark.parametrize(
    "make",
    [
        lambda: plot.space_time_panels({"a": field, "b": field}, x, t, label="u"),
        lambda: plot.space_time_panels({"a": field}, x, t, label="u", difference={"d": field - 0.5}),
        lambda: plot.space_time_panels({"a": np.where(field > 1, np.nan, field)}, x, t, label="u"),
        lambda: plot.profiles(x, {"a": x, "b": x**2}, reference=("exact", x**3)),
        lambda: plot.bars({"a": 1e-3, "b": np.nan, "c": 1.0}, label="error", highlight=["a"]),
        lambda: plot.bars({"a": -1.0, "b": 2.0}, label="gain", log=False),
        lambda: plot.pareto(
            {"a": (1, 2), "b": (2, 1), "c": (3, 3), "d": (0, 1)}, cost_label="c", error_label="e"
        ),
    ],
)
def test_every_plot_draws_and_leaves_matplotlib_alone(make):
    before = dict(matplotlib.rcParams)
    data = plot.png(make(), dpi=60)
    assert data.startswith(b"\x89PNG") and len(data) > 2000
    assert dict(matplotlib.rcParams) == before


def test_space_time_shows_x_to_the_right_and_t_upwards():
    _, ax = plot.figure()
    mesh = plot.space_time(ax, field, x, t)
    assert mesh.get_array().shape == (10, 20)
    assert ax.get_xlim()[1] > 1 and ax.get_ylim()[1] > 2 and ax.get_ylim()[0] < ax.get_ylim()[1]
    with pytest.raises(ValueError, match="10 times and 20 cells"):
        plot.space_time(ax, field.T, x, t)


def test_pareto_front_joins_only_undominated_points():
    made = plot.pareto({"a": (1, 2), "b": (2, 1), "c": (3, 3)}, cost_label="c", error_label="e")
    costs, errors = made.axes[0].lines[0].get_data()
    assert (list(np.asarray(costs)), list(np.asarray(errors))) == ([1, 2], [2, 1])
