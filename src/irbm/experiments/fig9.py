"""Fig. 9: samples of the best machines, from noise, beside test examples (sec. 4.2)."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from irbm import plots
from irbm.experiments import fig5, table1
from irbm.experiments.lab import Lab, load, settings_table
from irbm.experiments.paper import BOTH, DIGITS, TITLES
from irbm.models import Machine
from irbm.ops.noise import uniform_noise

TITLE = "Figure 9: samples, and test examples"
DATASETS = BOTH
SEEDS = QUICK_SEEDS = (0,)
SHOWN = 100
STEPS, QUICK_STEPS = 10_000, 200
DEEP_SHARE = 0.1  # of the steps, the first: z = l
FOR_SAMPLES, FOR_TRAP = 1, 2  # keys of the random streams


def samples(machine: Machine, n_steps: int, n_deep: int, *key: int) -> torch.Tensor:
    """Visibles after Gibbs steps from fair coins, the first ``n_deep`` of them with z = l: (SHOWN, D)."""
    noise = uniform_noise(*key, device=machine.weights.device, dtype=machine.weights.dtype)
    v_BD = (noise(SHOWN, machine.n_visible) < 0.5).to(machine.weights)
    v_BD, _ = machine.clamped().gibbs(v_BD, None, noise, n_deep)
    return machine.gibbs(v_BD, None, noise, n_steps - n_deep)[0]


def likeliest(machine: Machine, v_BD: torch.Tensor) -> NDArray[np.int64]:
    return np.asarray(fig5.log_prob_z(machine, v_BD)[:, :-1].argmax(1) + 1)


def unpacked(images: list[str], n_visible: int) -> NDArray[np.uint8]:
    """Pixels from hexadecimal digits, eight to a byte: (n, D)."""
    return np.array([np.unpackbits(np.frombuffer(bytes.fromhex(one), np.uint8))[:n_visible] for one in images])


def run(lab: Lab) -> dict[str, Any]:
    datasets, seeds = lab.chosen_datasets(DATASETS), lab.chosen_seeds(SEEDS, QUICK_SEEDS)
    runs = [figures(lab, name, seed) for name in datasets for seed in seeds]
    return {"datasets": list(datasets), "seeds": list(seeds), "settings": {}, "runs": runs}


def figures(lab: Lab, dataset: str, seed: int) -> dict[str, Any]:
    """What chains from noise come to, with z deep at first and with z free all along."""
    best = table1.best(lab, dataset, seed)
    machine, n_steps = best.machine, QUICK_STEPS if dataset == DIGITS else STEPS
    n_deep = int(DEEP_SHARE * n_steps)
    test = torch.from_numpy(load(dataset).test.X)
    drawn = {
        "samples": samples(machine, n_steps, n_deep, seed, FOR_SAMPLES),
        "z_free_all_along": samples(machine, n_steps, 0, seed, FOR_TRAP),
    }
    depth = {name: likeliest(machine, v_BD) for name, v_BD in drawn.items()} | {"test": likeliest(machine, test)}
    low = np.quantile(depth["test"], 0.001)
    return {
        "dataset": dataset,
        "seed": seed,
        "epoch": best.epoch,
        "settings": settings_table(replace(best.choice.training.settings, n_iter=best.epoch)),
        "n_steps": n_steps,
        "n_deep": n_deep,
        "median_likeliest_z": {name: float(np.median(z)) for name, z in depth.items()},
        # Shallower than all but one test example in a thousand.
        "share_in_noise": {name: float((depth[name] < low).mean()) for name in drawn},
        "images": [np.packbits(v).tobytes().hex() for v in drawn["samples"].to(torch.uint8).cpu().numpy()],
    }


def picture(lab: Lab, result: dict[str, Any]) -> Figure:
    grids = {}
    for r in result["runs"]:
        if r["seed"] != result["seeds"][0]:
            continue
        examples, title = load(r["dataset"]), TITLES[r["dataset"]]
        shape = examples.image_shape or (1, -1)
        rows = np.linspace(0, len(examples.test.X) - 1, SHOWN).astype(int)
        how = f"{r['n_steps']:,} steps from noise, z = l in the first {r['n_deep']:,}"
        grids[f"{title}: samples,\n{how}"] = unpacked(r["images"], examples.test.X.shape[1]).reshape(-1, *shape)
        grids[f"{title}: test examples"] = examples.test.X[rows].reshape(-1, *shape)
    return plots.image_grids(grids)


def section(result: dict[str, Any]) -> str:
    lines = [
        "| data | seed | epoch | median likeliest z: test | samples | from noise with z free | share left in noise: "
        "samples | with z free |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in result["runs"]:
        z, noise = r["median_likeliest_z"], r["share_in_noise"]
        lines.append(
            f"| {TITLES[r['dataset']]} | {r['seed']} | {r['epoch']} | {z['test']:.0f} | {z['samples']:.0f} | "
            f"{z['z_free_all_along']:.0f} | {noise['samples']:.0%} | {noise['z_free_all_along']:.0%} |"
        )
    first = result["runs"][0]
    deep = f"In the first {first['n_deep']:,} of {first['n_steps']:,} steps z is held at l"
    words = (
        f"Every chain starts from fair coins, as in the paper. {deep}, because with z free chains can stay where z is "
        "small and v is noise; then z is free. The last two columns say how many chains end at a likeliest z below "
        "that of all but one test example in a thousand. The paper does not mention the trap."
    )
    return "\n".join([*lines, "", words])
