"""Fig. 9: samples of the best machines, from noise, beside test examples (sec. 4.2)."""

from collections.abc import Sized
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from irbm import plots
from irbm.experiments import density_models, fig5
from irbm.experiments.lab import Lab, load, settings_table
from irbm.experiments.paper import BOTH, DIGITS, TITLES
from irbm.experiments.results import shown, table
from irbm.models import Frozen, Machine
from irbm.ops.noise import uniform_noise

TITLE = "Figure 9: samples, and test examples"
CLAIM = "Samples look like the data."
DATASETS = BOTH
SEEDS = QUICK_SEEDS = (0,)
SHOWN = 100
STEPS, QUICK_STEPS = 10_000, 200
DEEP_SHARE = 0.1  # of the steps, the first: z = l
FOR_SAMPLES, FOR_TRAP, FOR_EXAMPLES = 1, 2, 3  # keys of the random streams
GREYS = 15  # shades of a pixel beside white: a hexadecimal digit


def samples(
    machine: Machine, n_steps: int, n_deep: int, *key: int, start_BD: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Visibles after Gibbs steps, the first ``n_deep`` of them with z = l, and p(v = 1 | h) of the last: (SHOWN, D).

    They start from fair coins, or from the states given.
    """
    # Recorded sweeps count on from the last number of a key: those of two purposes must not meet.
    noise = uniform_noise(*key, 0, device=machine.weights.device, dtype=machine.weights.dtype)
    v_BD = noise(SHOWN, machine.n_visible) < 0.5 if start_BD is None else start_BD
    v_BD, _ = Frozen.of(machine.clamped()).gibbs(v_BD.to(machine.weights), None, noise, n_deep)
    v_BD, _ = Frozen.of(machine).gibbs(v_BD, None, noise, n_steps - n_deep - 1)
    field_BD = machine.visible_field(machine.sample_hidden(v_BD, None, noise)[1])
    return machine.visible.sample(field_BD, noise), machine.visible.mean(field_BD)


def likeliest(machine: Machine, v_BD: torch.Tensor) -> NDArray[np.int64]:
    return np.asarray(fig5.log_prob_z(machine, v_BD)[:, :-1].argmax(1) + 1)


def single_pixels(v_BD: torch.Tensor, shape: tuple[int, int]) -> float:
    """How many pixels of an image differ from all their neighbours, up to four, on average."""
    v = v_BD.cpu().numpy().reshape(-1, *shape).astype(bool)
    across, down = v[:, :, 1:] != v[:, :, :-1], v[:, 1:] != v[:, :-1]
    alone = np.ones_like(v)
    alone[:, :, 1:] &= across
    alone[:, :, :-1] &= across
    alone[:, 1:] &= down
    alone[:, :-1] &= down
    return float(alone.sum((1, 2)).mean())


def written(p_BD: torch.Tensor) -> list[str]:
    """Probabilities, one hexadecimal digit a pixel."""
    return ["".join(f"{shade:x}" for shade in row) for row in (p_BD * GREYS).round().int().tolist()]


def read(images: list[str]) -> NDArray[np.float64]:
    """What was written: (n, D)."""
    return np.array([[int(shade, 16) for shade in one] for one in images]) / GREYS


def run(lab: Lab) -> dict[str, Any]:
    datasets, seeds = lab.chosen_datasets(DATASETS), lab.chosen_seeds(SEEDS, QUICK_SEEDS)
    return lab.rows([(name, seed) for name in datasets for seed in seeds], _identity, row, table)


def _identity(lab: Lab, dataset: str, seed: int) -> str:
    models = density_models.models_with_rp(dataset)
    return " ".join(one.name(lab) for model in models for one in density_models.choices(lab, dataset, model, seed))


def row(lab: Lab, dataset: str, seed: int) -> dict[str, Any]:
    """What chains come to: from noise, with z deep at first and with z free all along, and from test examples."""
    model, best = density_models.best_regrouped(lab, dataset, seed)
    machine, n_steps = best.machine, QUICK_STEPS if dataset == DIGITS else STEPS
    n_deep = int(DEEP_SHARE * n_steps)
    examples = load(dataset)
    test, shape = torch.from_numpy(examples.test.X), examples.image_shape or (1, examples.test.X.shape[1])
    drawn, p_BD = samples(machine, n_steps, n_deep, seed, FOR_SAMPLES)
    chains = {
        "samples": drawn,
        "z_free_all_along": samples(machine, n_steps, 0, seed, FOR_TRAP)[0],
        "from_test": samples(machine, n_steps, 0, seed, FOR_EXAMPLES, start_BD=test[evenly(test)])[0],
    }
    depth = {name: likeliest(machine, v_BD) for name, v_BD in (chains | {"test": test}).items()}
    low = np.quantile(depth["test"], 0.001)
    return {
        "dataset": dataset,
        "model": model,
        "seed": seed,
        "epoch": best.epoch,
        "n_components": int(machine.size),
        "settings": settings_table(replace(best.choice.training.settings, n_iter=best.epoch)),
        "n_steps": n_steps,
        "n_deep": n_deep,
        "median_likeliest_z": {name: float(np.median(z)) for name, z in depth.items()},
        # Shallower than all but one test example in a thousand.
        "share_in_noise": {name: float((depth[name] < low).mean()) for name in chains},
        "single_pixels": {name: single_pixels(v_BD, shape) for name, v_BD in (chains | {"test": test}).items()},
        "images": written(p_BD),
        **best.made(),
    }


def picture(lab: Lab, result: dict[str, Any]) -> Figure:
    grids: dict[str, NDArray[Any]] = {}
    for r in shown(result):
        examples, title = load(r["dataset"]), TITLES[r["dataset"]]
        shape = examples.image_shape or (1, -1)
        how = f"after {r['n_steps']:,} steps from noise, {r['n_deep']:,} at z = l"
        grids[f"{title}, {r['model']}:\n{how}"] = read(r["images"]).reshape(-1, *shape)
        grids[f"{title}: test examples"] = examples.test.X[evenly(examples.test.X)].reshape(-1, *shape)
    return plots.image_grids(grids)


def evenly(X: Sized) -> NDArray[np.int64]:
    """Rows of the test examples in the picture."""
    return np.linspace(0, len(X) - 1, SHOWN).astype(np.int64)


def section(result: dict[str, Any]) -> str:
    lines = [
        "| data | model | seed | epoch | median likeliest z: test | samples | from noise with z free | share left in "
        "noise: samples | with z free | single pixels: test | samples | from test examples |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in result["rows"]:
        z, noise, single = r["median_likeliest_z"], r["share_in_noise"], r["single_pixels"]
        lines.append(
            f"| {TITLES[r['dataset']]} | {r['model']} | {r['seed']} | {r['epoch']} | {z['test']:.0f} | "
            f"{z['samples']:.0f} | {z['z_free_all_along']:.0f} | {noise['samples']:.0%} | "
            f"{noise['z_free_all_along']:.0%} | {single['test']:.1f} | {single['samples']:.1f} | "
            f"{single['from_test']:.1f} |"
        )
    first = result["rows"][0]
    deep = f"In the first {first['n_deep']:,} of {first['n_steps']:,} steps z is held at l"
    words = (
        "The machines: of this seed, those with RP that validated best in table 1 when these samples were drawn, our "
        "own rows among them. The "
        f"samples' chains start from fair coins, as in the paper. {deep}, because with z free chains can stay where z "
        "is small and v is noise; then z is free. The share left in noise are chains that end at a likeliest z below "
        "that of all but one test example in a thousand. The paper does not mention the trap. Black is 1: silhouettes "
        "are drawn in 0. Shown are the probabilities of the pixels, "
        "given the hidden units of the last step, and not pixels drawn from them, which spray: the last columns count "
        "pixels that differ from all their neighbours, in a test example, in a drawn sample, and in one whose chain "
        "has started from a test example and taken as many steps."
    )
    return "\n".join([*lines, "", words])
