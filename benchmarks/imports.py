"""How long `from graphrelu import GReLU` takes beyond torch and PyTorch Geometric.

Each time is that of a new process, with both of them imported already.
"""

import argparse
import statistics
import subprocess
import sys

TIMING = """
import time, torch, torch_geometric
start = time.perf_counter()
from graphrelu import GReLU
print(time.perf_counter() - start)
"""


def seconds() -> float:
    command = [sys.executable, "-W", "ignore", "-c", TIMING]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=7, help="processes")
    times = sorted(seconds() for _ in range(parser.parse_args().times))
    print(
        f"from graphrelu import GReLU: {statistics.median(times):.3f} s beyond torch and PyTorch "
        f"Geometric (median of {len(times)}; {times[0]:.3f} to {times[-1]:.3f})"
    )


if __name__ == "__main__":
    main()
