"""What known states of table 1's machines weigh, beside their ln Z: a state that outweighs it was missed.

``python -m benchmarks.known_states FOLDER...`` takes the folders (``OUT/chosen``) where the machines of
results/table1.json lie, looks for modes in each as an estimate does, and writes results/known_states.json: ln of the
sum of e^-F over what is found and the heaviest examples, and the row's ln Z. Rows whose machine is not there are named.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.starts import chosen

from irbm.evaluation import modes
from irbm.experiments import density_models
from irbm.experiments.results import stamp, write_json
from irbm.files import read_tensors
from irbm.ops.noise import uniform_noise


def machine_file(row: dict[str, Any], folders: list[Path]) -> Path | None:
    """Of the settings that were tried, the one that validates best, as the row had it; None where any is missing."""
    names = row["identity"].split()[:-1]
    files = [next((f for folder in folders if (f := folder / f"{name}.safetensors").is_file()), None) for name in names]
    there = {file: max(one["lower"] for one in _validation(file)) for file in files if file is not None}
    return max(there, key=lambda file: there[file]) if len(there) == len(names) else None


def _validation(file: Path) -> list[dict[str, Any]]:
    return list(read_tensors(file, "chosen")[1]["validation"])


def weighed(row: dict[str, Any], file: Path) -> dict[str, Any]:
    machine, X = chosen(file, row["dataset"])
    if row["model"] == density_models.CONVERTED:
        machine = density_models.as_rbm(machine, round(row["effective_size"]))
    if int(machine.size) != row["n_components"]:
        raise ValueError(f"{file} has {int(machine.size)} units, the row {row['n_components']}")
    found_BD = modes.hunt(machine, X.mean(0), X, uniform_noise(row["seed"], 0))
    known = modes.log_weight(machine, modes.heaviest(machine, found_BD, X))
    log_z = row["log_partition"]["value"]
    return {"place": row["place"], "known_weight": known, "log_z": log_z, "below": log_z - known}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    folders = parser.parse_args().folders
    rows, missing = [], []
    for row in json.loads(Path("results/table1.json").read_text())["rows"]:
        file = machine_file(row, folders)
        if file is None:
            missing.append(row["place"])
            continue
        rows.append(weighed(row, file))
        print(*rows[-1]["place"], f"{rows[-1]['known_weight']:.2f} of {rows[-1]['log_z']:.2f}", flush=True)
    print("not there:", missing)
    if not rows:  # a good result stays
        parser.error(f"no machine of results/table1.json is in {', '.join(map(str, folders))}")
    result = {"rows": rows, "not_there": missing, "least_below": min(row["below"] for row in rows)}
    write_json(Path("results/known_states.json"), {**result, **stamp("cpu")})


if __name__ == "__main__":
    main()
