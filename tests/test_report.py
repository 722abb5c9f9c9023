"""The report as a reader's browser takes it: parsed, its pictures decoded. And the pictures themselves."""

import base64
import io
import itertools
import json
from html.parser import HTMLParser

import matplotlib.image
import numpy as np
import pytest
import torch
from matplotlib._pylab_helpers import Gcf

from irbm import InfiniteRBM, data, plots, report
from irbm.estimators import density
from irbm.runs import Config, Run

HOSTILE = "<img src=x onerror=alert(1)>&amp;'\".npy"

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True, scope="module")
def few_steps():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "STEPS", 3)
        yield


class Page(HTMLParser):
    """The tags with their attributes, and the text by tag."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self._open = [], {}, []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, text):
        if self._open and text.strip():
            self.text.setdefault(self._open[-1], []).append(text)

    def pictures(self):
        sources = [attributes["src"] for tag, attributes in self.tags if tag == "img"]
        start = "data:image/png;base64,"
        assert all(source.startswith(start) for source in sources)
        return [
            matplotlib.image.imread(io.BytesIO(base64.b64decode(source.removeprefix(start), validate=True)))
            for source in sources
        ]


def is_self_contained(page):
    """Nothing is fetched and nothing runs."""
    fetching = {"src", "href", "srcset", "data", "action", "poster", "background", "style"}
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe", "object", "embed", "base", "form", "a")
        assert not any(name.startswith("on") for name in attributes)
        assert all(attributes[name].startswith("data:") for name in fetching & set(attributes))
    css = "".join(page.text["style"])
    assert "url(" not in css
    assert "@import" not in css
    return True


def trained(path, **table):
    run = Run(path)
    config = Config.from_table({"n_iter": 2, "device": "cpu"} | table)
    run.begin(config)
    assert run.train(config.load_data())
    return run


def read(run):
    path = report.write_report(run)
    assert path == run.path / "report.html"
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("digits"), dataset="digits")


@pytest.fixture(scope="module")
def page(digits):
    return read(digits)


@pytest.fixture
def own_data(tmp_path):
    file = tmp_path / HOSTILE
    np.save(file, np.random.default_rng(0).integers(0, 2, (60, 12), np.uint8))
    return str(file)


# -- the page -----------------------------------------------------------------------------------------------


def test_the_page_needs_nothing_else(digits, page):
    assert is_self_contained(page)
    html = (digits.path / "report.html").read_text(encoding="utf-8")
    assert "http://" not in html
    assert "https://" not in html


def test_the_page_says_what_was_trained(digits, page):
    assert page.text["h1"] == ["Infinite RBM on digits"]
    assert any(data.load("digits").note in text for text in page.text["p"])
    model = digits.model()
    assert page.text["b"][:3] == [str(model.n_components_), f"{model.effective_size_:.1f}", "2"]
    settings = dict(zip(page.text["dt"], page.text["dd"], strict=True))
    assert settings.keys() == digits.config().complete().keys()
    assert (settings["n_iter"], settings["max_components"], settings["persistent"]) == ("2", "none", "yes")
    assert torch.__version__ in page.text["footer"][0]


def test_the_page_holds_its_pictures(digits, page):
    curves, filters, *grids, depth = page.pictures()
    for picture in (curves, depth):
        assert picture.shape[1] == plots.WIDTH * plots.DPI
    l = digits.model().n_components_
    assert filters.shape[0] % (-(-l // 10) * 9 + 1) == 0
    assert len(grids) == 3
    for grid in grids:
        assert grid.shape[0] == grid.shape[1] == 12 * (10 * 9 + 1)
    test = data.load("digits").test.X
    rows = np.linspace(0, len(test) - 1, 100).astype(int)
    np.testing.assert_array_equal(pixels(grids[0], 100, (8, 8), columns=10), test[rows].reshape(-1, 8, 8))


def test_the_same_run_gives_the_same_page_and_leaves_nothing_global(digits, page):
    before = (digits.path / "report.html").read_bytes()
    assert report.write_report(digits).read_bytes() == before
    assert not Gcf.get_all_fig_managers()


@pytest.mark.parametrize(("model", "sections"), [("ordered", ["Samples", "Depth"]), ("fixed", ["Samples"])])
def test_machines_of_a_given_size(tmp_path, model, sections):
    page = read(trained(tmp_path, dataset="digits", model=model, n_components=12))
    assert page.text["h2"] == ["Settings", "Training", "Filters", *sections]
    assert len(page.pictures()) == 4 + len(sections)
    assert page.text["b"][0] == "12"


def test_data_without_image_shape_and_with_a_hostile_name(tmp_path, own_data):
    page = read(trained(tmp_path / "run", dataset=own_data))
    assert is_self_contained(page)
    assert page.text["h1"] == page.text["title"] == [f"Infinite RBM on {HOSTILE}"]
    assert own_data in page.text["dd"]
    assert page.text["h2"] == ["Settings", "Training", "Filters and samples", "Depth"]
    assert "no image shape" in " ".join(page.text["p"])
    assert len(page.pictures()) == 2


def test_the_figures_are_those_of_the_epoch_that_was_chosen(tmp_path, monkeypatch):
    """A score that only falls as the machine grows."""
    monkeypatch.setattr(density, "pseudo_log_likelihood", lambda machine, v: -machine.size.double().expand(len(v)))
    run = trained(tmp_path, dataset="digits", validate=True)
    model = run.model()
    assert model.best_epoch_ == 1
    assert model.n_components_ < model.history_[-1]["n_components"]
    assert read(run).text["b"][:3] == [str(model.n_components_), f"{model.effective_size_:.1f}", "1"]


def test_a_run_that_has_not_ended_has_no_report(tmp_path):
    run = Run(tmp_path)
    run.begin(Config.from_table({"dataset": "digits"}))
    with pytest.raises(FileNotFoundError, match="--resume"):
        report.write_report(run)
    assert not (tmp_path / "report.html").exists()


# -- classifiers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["hybrid", "discriminative"])
def test_a_classifiers_page_shows_its_errors(tmp_path, objective, monkeypatch):
    shown, draw = [], plots.confusion
    monkeypatch.setattr(plots, "confusion", lambda counts, names: shown.append((counts, names)) or draw(counts, names))
    run = trained(tmp_path, dataset="digits", task="classify", objective=objective, gibbs_steps=1, learning_rate=0.2)
    page, model, examples = read(run), run.model(), data.load("digits")
    assert is_self_contained(page)
    assert page.text["h1"] == ["Infinite RBM classifier on digits"]
    samples = ["Samples"] if objective == "hybrid" else []  # the other has not learned p(v)
    assert page.text["h2"] == ["Classification", "Settings", "Training", "Filters", *samples, "Depth"]
    cells = page.text["td"]
    for row, name in enumerate(("train", "validation", "test")):
        split = getattr(examples, name)
        errors, n = int((model.predict(split.X) != split.y).sum()), len(split.X)
        assert cells[3 * row] == f"{errors / n:.2%}"
        assert cells[3 * row + 2] == f"{errors:,} of {n:,}"
    assert f"Epoch {model.best_epoch_} of 2 was chosen" in " ".join(page.text["p"])
    goal = "ln p(y | v) + 0.005 ln p(v, y)" if objective == "hybrid" else "maximising ln p(y | v)"
    assert goal in page.text["p"][0]
    assert len(page.pictures()) == 4 + 3 * len(samples)
    [(counts, names)] = shown
    np.testing.assert_array_equal(counts.sum(1), np.bincount(examples.test.y))  # a row for each true label
    np.testing.assert_array_equal(counts.sum(0), np.bincount(model.predict(examples.test.X), minlength=10))
    assert names == [str(label) for label in range(10)]


def test_classes_go_by_their_names():
    split = data.Split(np.zeros((3, 2), np.uint8), np.array([1, 2, 3]))
    named = data.Dataset("x", split, split, split, None, "", ("one", "two", "three"))
    assert report._class_names(named, np.array([1, 3])) == ["one", "three"]
    nameless = data.Dataset("x", split, split, split, None, "")
    assert report._class_names(nameless, np.array([1, 3])) == ["1", "3"]


def test_the_confusion_picture_shows_shares_of_errors_and_counts():
    counts = np.array([[8, 2, 0], [0, 5, 0], [1, 0, 3]])
    axes, _ = plots.confusion(counts, ["a", "b", "c"]).axes
    drawn = np.ma.filled(axes.images[0].get_array(), np.nan)
    np.testing.assert_allclose(drawn, [[np.nan, 0.2, 0], [0, np.nan, 0], [0.25, 0, np.nan]])
    written = {(int(t.get_position()[1]), int(t.get_position()[0])): int(t.get_text()) for t in axes.texts}
    assert written == {(0, 0): 8, (0, 1): 2, (1, 1): 5, (2, 0): 1, (2, 2): 3}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c"]


@pytest.mark.parametrize("n_classes", [1, 2, 25, 26, 101])
def test_confusion_of_any_number_of_classes_can_be_drawn(n_classes):
    figure = plots.confusion(np.eye(n_classes, dtype=int), [f"class number {i}" for i in range(n_classes)])
    assert decoded(figure).size
    assert 1 <= len(figure.axes[0].get_xticks()) <= plots.NAMED_CLASSES


# -- evaluation.json ----------------------------------------------------------------------------------------


@pytest.fixture
def evaluation(digits):
    path = digits.path / "evaluation.json"
    yield path
    path.unlink(missing_ok=True)


def figures(reliable):
    return {
        "log_partition": {"value": 123.25, "lower": 123, "reliable": reliable, "reason": "<b>sum & all</b>"},
        "test_log_likelihood": -20.125,
    }


def test_an_evaluation_is_shown(digits, evaluation):
    evaluation.write_text(json.dumps(figures(reliable=True)))
    page = read(digits)
    assert page.text["h2"][0] == "Likelihood"
    assert dict(zip(page.text["th"], page.text["td"], strict=True)) == {
        "log partition, value": "123.25",
        "log partition, lower": "123",
        "log partition, reliable": "yes",
        "log partition, reason": "<b>sum & all</b>",
        "test log likelihood": "-20.125",
    }
    assert "not reliable" not in " ".join(page.text["p"])


def test_an_unreliable_evaluation_is_marked(digits, evaluation):
    evaluation.write_text(json.dumps(figures(reliable=False)))
    assert "not reliable" in " ".join(read(digits).text["p"])


def test_without_an_evaluation_there_is_no_likelihood(page):
    assert page.text["h2"] == ["Settings", "Training", "Filters", "Samples", "Depth"]


def test_a_damaged_evaluation_is_refused(digits, evaluation):
    evaluation.write_text('{"log_partition": ')
    with pytest.raises(ValueError, match=r"evaluation\.json"):
        report.write_report(digits)


# -- samples ------------------------------------------------------------------------------------------------


def test_chains_are_those_of_the_model(digits):
    model, X = digits.model(), data.load("digits").test.X[:5]
    drawn = report.run_chains(model, 5, 4, seed=9)
    np.testing.assert_array_equal(drawn, model.sample(5, n_steps=4, random_state=9))
    moved = report.run_chains(model, X, 4, seed=9)
    np.testing.assert_array_equal(moved, model.gibbs(X, 4, random_state=9))
    assert (moved != X).any()


def test_mixing_is_told_by_single_depths_and_not_by_the_tail():
    """One unit that every example uses, and units of nothing: the tail outweighs z = 1, and is not one z."""
    W = np.zeros((4, 3))
    W[0] = 5.0
    model = InfiniteRBM.from_parameters(W, np.zeros(4), np.zeros(3))
    X = np.ones((6, 3), np.uint8)
    assert (model.log_prob_z(X).argmax(1) == 4).all()
    assert "The median likeliest z is 1 for the test examples, 1 where" in report._mixing(model, X, X, X)


def test_chains_take_every_step(digits, monkeypatch):
    monkeypatch.setattr(report, "PIECE", 3)
    monkeypatch.setattr(report, "DEEP_STEPS", 2)
    monkeypatch.setattr("irbm.estimators.base.DEEP_STEPS", 2)
    model, rng = digits.model(), np.random.RandomState(9)
    expected = model.sample(5, n_steps=4, random_state=rng)
    for steps in (3, 1):
        expected = model.gibbs(expected, steps, random_state=rng)
    np.testing.assert_array_equal(report.run_chains(model, 5, 8, seed=9), expected)


def test_chains_from_noise_and_from_examples_share_no_random_numbers(digits, monkeypatch):
    seeds = []
    run_chains = report.run_chains
    monkeypatch.setattr(report, "run_chains", lambda *given: seeds.append(given[-1]) or run_chains(*given))
    report.write_report(digits)
    assert len(set(seeds)) == len(seeds) == 2


def test_a_threshold_of_the_raw_data_does_not_touch_binary_examples(tmp_path):
    file = tmp_path / "grey.npy"
    np.save(file, np.random.default_rng(0).choice([10, 200], (60, 12)).astype(np.uint8))
    run = trained(tmp_path / "run", dataset=str(file), binarize=127)
    assert run.model().gibbs(np.ones((3, 12)), clamp=np.ones(12, bool)).all()


# -- pictures -----------------------------------------------------------------------------------------------


def pixels(picture, n, shape, columns):
    """The images of a grid of black and white ones, read back from the picture."""
    h, w = shape[0] + 1, shape[1] + 1
    scale = picture.shape[1] // (min(columns, n) * w + 1)
    cells = picture[scale // 2 :: scale, scale // 2 :: scale, 0]
    corners = [(1 + i // columns * h, 1 + i % columns * w) for i in range(n)]
    return np.array([cells[y : y + shape[0], x : x + shape[1]] < 0.5 for y, x in corners], int)


def decoded(figure):
    return matplotlib.image.imread(io.BytesIO(plots.to_png(figure)))


@pytest.mark.parametrize(("n", "shape", "columns"), [(7, (3, 5), 3), (4, (28, 28), 10), (1, (1, 1), 1)])
def test_a_grid_shows_its_images_in_order(n, shape, columns):
    images = np.random.default_rng(0).integers(0, 2, (n, *shape))
    np.testing.assert_array_equal(pixels(decoded(plots.image_grid(images, columns)), n, shape, columns), images)


def test_weights_share_one_scale_around_zero():
    weights = np.zeros((2, 4, 4))
    weights[0, 1, 1], weights[1, 2, 2] = 2.0, -1.0
    (picture,) = plots.image_grid(weights, diverging=True).axes[0].images
    low, high = picture.get_clim()
    assert low == -high
    assert high <= 2.0
    assert np.nanmax(picture.get_array()) == 2.0


def test_weights_that_are_all_zero_can_be_drawn():
    assert decoded(plots.image_grid(np.zeros((1, 2, 2)), diverging=True)).size


def test_curves_show_every_row():
    names = ("n_components", "effective_size", "mean_z", "regrouped", "reconstruction_error")
    rows = [{"epoch": e, **{name: e * (i + 1) for i, name in enumerate(names)}} for e in (1, 2, 3)]
    sizes, error = plots.curves(rows).axes
    drawn = [line.get_ydata() for line in (*sizes.lines, *error.lines)]
    np.testing.assert_array_equal(drawn, [[row[name] for row in rows] for name in names])
    assert sizes.get_xlabel() == error.get_xlabel() == "epoch"


def test_curves_leave_out_what_is_always_zero():
    row = {"epoch": 1, "n_components": 5, "effective_size": 5, "mean_z": 5, "regrouped": 0, "reconstruction_error": 0.1}
    assert len(plots.curves([row]).axes[0].lines) == 3


@pytest.mark.parametrize("tail", [True, False])
def test_the_depth_map_sorts_examples_by_likeliest_z(tail):
    p_z = np.random.default_rng(0).dirichlet(np.ones(6), size=40)
    first, *others, _ = plots.depth_map(np.log(p_z), tail=tail).axes
    parts = [np.asarray(axes.images[0].get_array()) for axes in (first, *others)]
    drawn = np.hstack(parts)
    assert [part.shape[1] for part in parts] == ([5, 1] if tail else [6])
    assert (np.diff(parts[0].argmax(axis=1)) >= 0).all(), "by z <= l: the pooled tail is not one z"
    np.testing.assert_allclose(np.sort(drawn, axis=0), np.sort(p_z, axis=0))


# -- estimates of ln Z --------------------------------------------------------------------------------------


def test_every_path_and_start_has_a_mark_of_its_own():
    names = [("forward", path) for path in "abcd"] + [("reverse", start) for start in "xyz"]
    trials = [
        {"side": side, "name": name, "n_points": points, "n_chains": 400, "value": 7.0, "stderr": 0.1}
        for points in (500, 1000)
        for side, name in names
    ]
    axes = plots.annealing(trials, 6.5, 7.5, exact=7.1).axes[0]
    lines = [bar[0] for bar in axes.containers]
    assert len({line.get_marker() for line in lines}) == len(names)
    assert len({line.get_color() for line in lines}) == 2
    assert [line.get_label() for line in axes.containers] == [f"{side}: {name}" for side, name in names]
    for line in lines:
        assert [round(x) for x in line.get_xdata()] == [0, 1]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["500\n400", "1000\n400"]


def test_estimates_go_from_short_paths_to_long_ones_and_the_bracket_is_written():
    trials = [
        {"side": "forward", "name": "a", "n_points": points, "n_chains": chains, "value": float(points), "stderr": 0.1}
        for points, chains in ((1000, 100), (3000, 100), (500, 400), (1000, 400))
    ]
    axes = plots.annealing(trials, 6.5, 7.5).axes[0]
    (bars,) = axes.containers
    assert [value for _, value in sorted(zip(*bars[0].get_data(), strict=True))] == [500, 1000, 1000, 3000]
    assert [tick.get_text().split("\n")[0] for tick in axes.get_xticklabels()] == ["500", "1000", "1000", "3000"]
    assert "bracket: 6.50 to 7.50" in legend_of(axes)


# -- pictures of experiments --------------------------------------------------------------------------------


def legend_of(place):
    return [text.get_text() for text in place.get_legend().get_texts()]


@pytest.mark.parametrize(("l", "regrouped"), [(1522, 1050), (1079, 971), (200, 150), (14, 9), (61, 0), (5, 5)])
def test_no_bar_of_depths_lies_on_both_sides_of_what_was_regrouped(l, regrouped):
    counts = np.random.default_rng(0).integers(1, 50, l)
    bars = plots.depth_histograms({"": (counts, regrouped)}).axes[0].patches
    below = sum(bar.get_height() for bar in bars if bar.get_x() + bar.get_width() <= regrouped + 0.5)
    above = sum(bar.get_height() for bar in bars if bar.get_x() >= regrouped + 0.5)
    assert (below, above) == (counts[:regrouped].sum(), counts[regrouped:].sum())
    assert len(bars) <= 62


UNSURE = {"epoch": 10, "value": -90.0, "lower": -93.0, "upper": -89.5, "reliable": False}
SURE = {"epoch": 20, "value": -85.0, "lower": -85.2, "upper": -84.9, "reliable": True}


def test_curves_have_a_bar_for_every_bracket_and_hollow_marks():
    axes = plots.likelihood_curves({"": {"one": {0: [UNSURE, SURE]}, "other": {0: [UNSURE, SURE]}}}).axes[0]
    for bars in axes.containers:
        (drawn,) = bars.lines[2]
        spans = [segment[:, 1].tolist() for segment in drawn.get_segments()]
        np.testing.assert_allclose(spans, [[-93.0, -89.5], [-85.2, -84.9]])
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert [line.get_ydata() for line in hollow] == [[-90.0], [-90.0]]
    places = [line.get_xdata()[0] for line in hollow]
    assert places[0] < 10 < places[1]


def test_curves_of_one_way_have_its_colour_in_every_panel_and_a_mark_for_each_seed():
    runs = {"one": {0: [SURE]}, "other": {0: [SURE], 1: [SURE]}}
    figure = plots.likelihood_curves({"L1": runs, "L2": {"other": {1: [SURE]}}})
    left, right = ([bars.lines[0] for bars in axes.containers] for axes in figure.axes)
    one, first, second = left
    assert one.get_color() != first.get_color() == second.get_color() == right[0].get_color()
    assert one.get_marker() == first.get_marker() != second.get_marker() == right[0].get_marker()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["one", "other"]
    assert legend.get_title().get_text() == "a mark for each seed; bar: bracket"


def test_a_mean_is_shown_with_what_it_is_of():
    row = plots.Compared("model", 2.0, 1.5, 2.5, True, 1.4, (1.8, 2.2))
    figure = plots.comparison({"data": [row]}, "error")
    drawn = [line.get_xdata() for line in figure.axes[0].lines]
    assert [list(x) for x in drawn].count([1.8, 2.2]) == 1
    assert "seeds" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_third_panel_stands_below_the_first():
    row = plots.Compared("model", 2.0, 1.5, 2.5, True, None)
    figure = plots.comparison({title: [row] for title in ("one", "two", "three")}, "error")
    figure.draw_without_rendering()
    one, two, three, none = figure.axes
    assert not none.axison
    assert one.get_position().x0 == three.get_position().x0 < two.get_position().x0
    assert three.get_position().y1 < one.get_position().y0


def test_labels_of_errors_do_not_touch():
    errors = np.array([[0.5, 0.03], [0.4, 0.035]])
    figure = plots.error_curves({"": {"with RP": errors, "without RP": errors / 2}}, columns=1)
    figure.draw_without_rendering()
    axis = figure.axes[0].yaxis
    bottom, top = axis.get_view_interval()
    ticks = [tick for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()) if bottom <= tick.get_loc() <= top]
    labels = [tick.label1 for tick in ticks if tick.label1.get_text()]
    shown = sorted((label.get_window_extent() for label in labels), key=lambda box: box.y0)
    assert len(shown) > 3
    assert all(low.y1 < high.y0 for low, high in itertools.pairwise(shown))


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ((True, True), ["value, with bracket"]),
        ((True, False), ["value, with bracket", "not reliable"]),
        ((False, False), ["value, with bracket; not reliable"]),
    ],
)
def test_the_legend_of_verdicts_has_those_that_occur(verdicts, said):
    points = [
        plots.Valued(beta, -90.0 * beta, -91.0 * beta, -89.0 * beta, sure, 100 / beta)
        for beta, sure in zip((1.01, 1.5), verdicts, strict=True)
    ]
    figure = plots.sensitivity({"a": points}, "β")
    upper, lower = figure.axes
    brackets, marks = upper.lines[::2], upper.lines[1::2]
    assert [(*line.get_xdata(), *line.get_ydata()) for line in brackets] == [
        (p.x, p.x, p.lower, p.upper) for p in points
    ]
    assert [(*line.get_xdata(), *line.get_ydata()) for line in marks] == [(p.x, p.value) for p in points]
    assert [line.get_markerfacecolor() != "white" for line in marks] == list(verdicts)
    np.testing.assert_array_equal(lower.lines[0].get_ydata(), [p.effective_size for p in points])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == said
