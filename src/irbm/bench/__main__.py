"""Write docs/performance.md from results/bench_*.json and whole_runs.json, by irbm bench and irbm.bench.whole_runs."""

import argparse

from irbm.bench.page import write_page


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m irbm.bench", description=__doc__)
    parser.add_argument("--results", default="results")
    parser.add_argument("--out", default="docs/performance.md")
    args = parser.parse_args()
    write_page(args.results, args.out)


if __name__ == "__main__":
    main()
