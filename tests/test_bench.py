"""The benchmark at small sizes: what it times, what it writes. No figure in seconds is judged here."""

import json
import sys
import time
from dataclasses import replace
from importlib.metadata import distributions

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from irbm import bench, cli
from irbm.bench import cases, errors, page, peers, steps, timing, whole_runs
from irbm.bench.steps import Case
from irbm.experiments.lab import Lab

SMALL = (Case(12, 6, 5, 1), Case(12, 6, 5, 3, 7))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Small sizes, one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setitem(cases.CASES, "cpu", SMALL)
    monkeypatch.setattr(cases, "SCALING", {"l": (3, 5), "k": (1, 2)})
    monkeypatch.setattr(cases, "EPOCH", {"cpu": 2})
    monkeypatch.setattr(timing, "SETTLED", 0.0)
    monkeypatch.setattr(cases, "GROWTH_STEPS", {"cpu": 40})
    monkeypatch.setattr(steps, "HELD_SIZES", 3)
    monkeypatch.setattr(cases, "CHAINS", {"cpu": 4})
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def result():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(cases.CASES, "cpu", SMALL)
        patch.setattr(cases, "SCALING", {"l": (3, 5), "k": (1, 2)})
        patch.setattr(cases, "EPOCH", {"cpu": 2})
        patch.setattr(cases, "GROWTH_STEPS", {"cpu": 40})
        patch.setattr(steps, "HELD_SIZES", 3)
        patch.setattr(timing, "SETTLED", 0.0)
        patch.setattr(cases, "CHAINS", {"cpu": 4})
        return json.loads(json.dumps(cases.run("cpu", scaling=True, repetitions=2, seed=3)))


def run_irbm(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["irbm", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code or 0


class TestTiming:
    def test_the_median_of_turns(self, monkeypatch):
        """Each turn takes what the clock says; a slow turn does not move the median."""
        order, clock = [], [0.0]
        monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

        def call(name, durations):
            left = iter(durations)

            def step():
                order.append(name)
                clock[0] += next(left)

            return step

        calls = {"a": (call("a", [9, 9, 2, 100, 4]), 2), "b": (call("b", [9, 9, 1, 1, 1]), 1)}
        timed = timing.interleaved(calls, 3, "cpu")
        assert order == ["a", "a", "b", "b", *"ababab"]
        assert timed["a"] == timing.Timing(2.0, 1.0, (1.5, 26.0), 3)
        assert timed["b"].median == 1.0


class TestWhatIsTimed:
    def test_the_trainer_takes_real_steps(self):
        ours = steps.trainer(SMALL[0], 4, 0, "cpu")
        before = ours.machine.weights.clone()
        ours.run_epoch()
        assert ours.state.step == 4
        assert not torch.equal(ours.machine.weights[:6], before)
        assert int(ours.machine.size) == 6  # held
        assert (ours.settings.optimizer, ours.settings.persistent, ours.settings.l1 > 0) == ("adagrad", True, True)

    @pytest.mark.parametrize("case", SMALL)
    def test_the_floor_has_the_products_of_the_step(self, case):
        """Counted in operations, at the capacity that the trainer works with."""
        ours = steps.trainer(case, 1, 0, "cpu")
        ours.run_epoch()
        with FlopCounterMode(display=False) as of_step:
            ours.step(torch.arange(case.B))
        floor = steps.products(replace(case, l=ours.machine.capacity), torch.float32, "cpu")
        with FlopCounterMode(display=False) as of_floor:
            floor()
        means = 2 * (case.B + case.n_chains) * case.D  # of the visible units, a vector times a matrix
        assert of_step.get_total_flops() == of_floor.get_total_flops() + means

    def test_growth_is_timed_against_the_sizes_it_went_through(self, monkeypatch):
        """By a clock that ticks once for each unit of a step: held machines of the same sizes take as long."""
        held, seconds = [], [0.0]
        real_step, real_trainer = steps.Trainer.step, steps._trainer

        def step(self, rows):
            real_step(self, rows)
            seconds[0] += float(self.machine.size)

        def trainer(case, *rest, most):
            held.extend([] if most is None else [case.l])
            return real_trainer(case, *rest, most=most)

        monkeypatch.setattr(steps.Trainer, "step", step)
        monkeypatch.setattr(steps, "_trainer", trainer)
        monkeypatch.setattr(time, "perf_counter", lambda: seconds[0])
        grown = steps.growth(Case(200, 6, 20, 1), 80, 2, 0, "cpu")
        assert grown["first_size"] == 1 < held[0]
        assert grown["last_size"] > held[-1] > 32
        assert len(grown["capacities"]) > 1
        assert held == sorted(held)
        assert len(held) == 3
        assert grown["steps"] == 160 - grown["untimed"]
        assert grown["held"] == pytest.approx(sum(held) / 3)
        assert grown["growing"] == pytest.approx(grown["held"], rel=0.1)
        few, n = grown["untimed"], grown["steps"]  # the first of them have one unit, or little more
        assert n * grown["growing"] + few <= (n + few) * grown["growing_with_first"] < n * grown["growing"] + 10 * few

    def test_chains_go_on_from_where_they_are(self, monkeypatch):
        starts, real = [], steps.Frozen.gibbs
        monkeypatch.setattr(
            steps.Frozen, "gibbs", lambda self, v, *how: starts.append(v.clone()) or real(self, v, *how)
        )
        sweeps = steps.sampling(12, 6, 4, 3, 0, "cpu")
        sweeps()
        sweeps()
        assert [v.shape for v in starts] == [(4, 12)] * 2
        assert not torch.equal(*starts)

    @pytest.mark.parametrize("peer", [peers.plain_torch, peers.compared_torch])
    def test_the_plain_peer_learns(self, peer):
        """Its mean activity moves to the data's: it is a working RBM, not a sketch of one."""
        case = Case(10, 4, 50, 1)
        step = peer(case, 0, "cpu")
        visible = dict(zip(step.__code__.co_freevars, (c.cell_contents for c in step.__closure__), strict=True))
        torch.manual_seed(0)
        far = [float((torch.sigmoid(visible["b_D"]) - visible["v_BD"].mean(0)).abs().mean())]
        for _ in range(2000):
            step()
        far.append(float((visible["v_ND"].mean(0) - visible["v_BD"].mean(0)).abs().mean()))
        assert far[1] < 0.5 * far[0]

    def test_scikit_learn_takes_its_own_step(self):
        step = peers.scikit_learn(SMALL[0], 0, "cpu")
        model = next(c.cell_contents for c in step.__closure__ if hasattr(c.cell_contents, "components_"))
        before = model.components_.copy()
        step()
        assert model.components_.dtype == np.float32
        assert not np.array_equal(before, model.components_)

    def test_who_takes_part(self, monkeypatch):
        monkeypatch.setattr(peers, "distributions", lambda name: [])
        assert "scikit-learn BernoulliRBM" in peers.able(SMALL[0], "cpu")
        assert "scikit-learn BernoulliRBM" not in peers.able(SMALL[1], "cpu")  # it knows no PCD-3
        assert len(peers.able(SMALL[1], "cpu")) == 2  # both in plain torch
        assert "scikit-learn BernoulliRBM" not in peers.able(SMALL[0], "cuda")
        monkeypatch.setattr(peers, "distributions", lambda name: [name])
        assert "rbms" in peers.able(SMALL[1], "cpu")

    @pytest.mark.skipif(not any(distributions(name="rbms")), reason="rbms is not installed")
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own
    def test_rbms_takes_a_step(self):
        peers.rbms(SMALL[1], 0, "cpu")()


class TestErrors:
    def test_of_a_product_that_is_off_by_one_place(self):
        x, y = torch.eye(4), 2 * torch.eye(4)
        found = 2 * torch.eye(4)
        found[1, 2] = 0.5  # the exact product's root mean square is 1
        assert errors.error(found, x, y) == {"largest": 0.5, "rms": 0.125}

    def test_by_precision(self, monkeypatch):
        """Half precision is off by 2^-9 of the numbers; the parts stand in for it here as exact products."""
        monkeypatch.setattr(errors, "_split_activations", lambda v, W: (v.double() @ W.T.double()).float())
        monkeypatch.setattr(errors, "_split_gradient", lambda p, v: (p.T.double() @ v.double()).float())
        found = errors.of_products(Case(200, 30, 40, 1), 0, "cpu")
        for of in found.values():
            assert of["split bfloat16"]["largest"] < 1e-6
            assert of["float32"]["largest"] < 1e-5
            assert 1e-4 < of["bfloat16"]["rms"] < of["bfloat16"]["largest"] < 0.05


class TestResult:
    def test_fields(self, result):
        assert {
            "commit",
            "device",
            "threads",
            "versions",
            "date",
            "seed",
            "hardware",
            "load_average",
            "environment",
        } <= set(result)
        assert {"python", "torch", "numpy", "scikit-learn"} <= set(result["versions"])
        assert result["seed"] == 3
        assert [row["name"] for row in result["steps"]] == [case.name for case in SMALL]
        for row in (*result["steps"], *result["annealing"], *result["sampling"], *result["scoring"]):
            for timed in row["seconds"].values():
                low, high = timed["quartiles"]
                assert 0 < timed["fastest"] <= low <= timed["median"] <= high
                assert timed["repetitions"] == 2
        first = result["steps"][0]["seconds"]
        assert {"irbm", "its matrix products in float32", "plain RBM, torch eager"} <= set(first)
        assert "scikit-learn BernoulliRBM" in first
        assert len(result["scoring"][0]["seconds"]) == 3

    def test_series_change_one_size(self, result):
        assert [row["l"] for row in result["scaling"]["l"]] == [3, 5]
        assert [(row["l"], row["k"]) for row in result["scaling"]["k"]] == [(6, 1), (6, 2)]

    def test_how_straight_a_line_is(self):
        def series(*seconds):
            sizes = (100, 200, 400)
            return [{"l": l, "seconds": {"irbm": {"median": s}}} for l, s in zip(sizes, seconds, strict=True)]

        straight = page.fit_line(series(2e-4, 3e-4, 5e-4))
        assert "from 100 to 400 units: 100 µs and 100 µs for each hundred units" in straight
        assert "further from than 0 %" in straight
        times = np.array([1.0, 1.6, 1.7])
        by_numpy = np.polyval(np.polyfit([100, 200, 400], times, 1, w=1 / times), [100, 200, 400])
        worst = 100 * np.abs(by_numpy / times - 1).max()
        assert worst > 5
        assert f"further from than {worst:.0f} %" in page.fit_line(series(*times))

    def test_page_and_picture(self, result, tmp_path):
        (tmp_path / "bench_cpu.json").write_text(json.dumps(result))
        page.write_page(tmp_path, tmp_path / "performance.md")
        text = (tmp_path / "performance.md").read_text()
        row = result["steps"][0]["seconds"]
        other = row["plain RBM, torch eager"]
        shares = [f"{row['irbm'][which] / other[which]:.2f}" for which in ("median", "fastest")]
        cells = ["plain RBM, torch eager", page.duration(other["median"]), *shares]
        assert f"| {' | '.join(cells)} |" in text
        assert result["commit"] in text
        assert result["hardware"] in text
        assert f"torch {result['versions']['torch']}" in text
        assert "(performance_cpu.png)" in text
        assert (tmp_path / "performance_cpu.png").read_bytes().startswith(b"\x89PNG")

    def test_a_result_without_series_has_no_picture_of_another(self, result, tmp_path):
        (tmp_path / "bench_cpu.json").write_text(json.dumps(result))
        (tmp_path / "bench_cpu_other.json").write_text(json.dumps({**result, "hardware": "another", "scaling": {}}))
        page.write_page(tmp_path, tmp_path / "performance.md")
        text = (tmp_path / "performance.md").read_text()
        assert "## another" in text
        assert text.count("(performance_cpu.png)") == text.count(".png)") == 1
        assert not (tmp_path / "performance_cpu_other.png").exists()

    def test_the_page_has_whole_runs_memory_and_errors(self, result, tmp_path):
        ours = {**result, "errors": {"name": "12 x 6", "activations": {"float32": {"largest": 2e-7, "rms": 1e-8}}}}
        ours["steps"] = [{**row, "peak_bytes": 3 * 2**20} for row in result["steps"]]
        (tmp_path / "bench_cpu.json").write_text(json.dumps(ours))
        row = {
            "dataset": "digits", "model": "iRBM RP", "device": "a GPU", "commit": "abc", "epochs": 1000, "steps": 41000,
            "settings": {"persistent": False, "gibbs_steps": 25, "batch_size": 100},
            "n_components": 77, "wall_seconds": 61.2,
        }  # fmt: skip
        table = {"notes": {"digits": "of 8 x 8"}, "rows": [row]}
        (tmp_path / "whole_runs.json").write_text(json.dumps(table))
        page.write_page(tmp_path, tmp_path / "performance.md")
        text = (tmp_path / "performance.md").read_text()
        assert (
            "digits (of 8 x 8), CD-25, minibatch 100, 1000 epochs, 41,000 steps, 77 units at the end: 61 s on a GPU. "
            "Commit abc." in text
        )
        assert text.count(": 3.0 MiB.") == len(SMALL)
        assert "activations (12 x 6) against float64, as a share of their root mean square: 2.0e-07 in float32." in text

    def test_the_page_says_how_long_a_row_of_table_1_takes_from_nothing(self, result, tmp_path):
        (tmp_path / "bench_cpu.json").write_text(json.dumps(result))
        row = {"dataset": "digits", "model": "iRBM RP", "seed": 7, "epochs": 50, "validation": [{}, {}, {}]}
        table = {"rows": [row], "wall_seconds": 95.7, "device": "a GPU", "commit": "abc"}
        (tmp_path / "table1_one_command.json").write_text(json.dumps(table))
        page.write_page(tmp_path, tmp_path / "performance.md")
        text = (tmp_path / "performance.md").read_text()
        assert (
            'reproduce table1 --dataset digits --only "iRBM RP" --seeds 7` in an empty folder: training, 3 looks'
            in text
        )
        assert "50 epochs, 96 s on a GPU. Commit abc." in text

    @pytest.mark.parametrize(("load", "busy"), [(0.1, False), (3.0, True)])
    def test_the_page_says_whether_the_machine_was_busy(self, result, load, busy):
        loaded = {**result, "load_average": {"before": [load] * 3, "after": [1.0] * 3}, "threads": 1}
        text = page.page({"": loaded})
        assert ("Other work" in text) == busy
        assert ", 1 thread\n" in text

    @pytest.mark.parametrize(
        ("seconds", "text"), [(2.5, "2.5 s"), (0.0123456, "12.3 ms"), (0.000155, "155 µs"), (1e-7, "0.1 µs")]
    )
    def test_duration(self, seconds, text):
        assert page.duration(seconds) == text


class TestCommand:
    def test_prints_a_table_and_writes_json(self, monkeypatch, capsys, tmp_path):
        file = tmp_path / "deep" / "bench.json"
        assert run_irbm(monkeypatch, "bench", "--device", "cpu", "--json", file, "--repetitions", 1) == 0
        printed = capsys.readouterr().out
        assert "irbm takes of it" in printed
        assert "scikit-learn" in printed
        written = json.loads(file.read_text())
        assert written["scaling"] == {}
        assert len(bench.tables(written)) == 5

    def test_refuses_before_any_work(self, monkeypatch, capsys, tmp_path):
        monkeypatch.setattr(bench, "run", lambda *a, **k: pytest.fail("it worked"))
        taken = tmp_path / "taken.json"
        taken.write_text("mine")
        assert run_irbm(monkeypatch, "bench", "--device", "cpu", "--json", taken) == 2
        assert taken.read_text() == "mine"
        assert run_irbm(monkeypatch, "bench", "--device", "tpu") == 2
        assert run_irbm(monkeypatch, "bench", "--device", "cpu", "--repetitions", 0) == 2
        assert run_irbm(monkeypatch, "bench", "--device", "cpu", "--seed", -1) == 2
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert run_irbm(monkeypatch, "bench", "--device", "cuda") == 2
        errors = capsys.readouterr().err
        for name in ("taken.json", "'tpu'", "repetitions", "seed", "cuda"):
            assert name in errors


def test_a_whole_run_is_timed_once_from_its_start(tmp_path):
    lab = Lab(out=tmp_path, name="whole_runs", quick=True, epochs=2)
    row = whole_runs.timed(lab, "digits", 0)
    assert (row["epochs"], row["steps"], row["settings"]["n_iter"]) == (2, 26, 2)
    assert 0 < row["training_seconds"] < row["wall_seconds"]
    with pytest.raises(FileExistsError, match="use another --out"):
        whole_runs.timed(lab, "digits", 0)
