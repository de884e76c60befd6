#!/usr/bin/env python3
"""Speed beside llama.cpp's, on the same machine and weights, in turns, so that a busy neighbour disturbs both alike.

    cargo build --release
    tests/bench/beside_llama_cpp.py --model DIR --llama-bench llama-bench q4=Q4_0.gguf q8=Q8_0.gguf none=bf16.gguf

DIR is a checkpoint in Hub layout, the files are made from it by llama.cpp's convert_hf_to_gguf.py and llama-quantize
(Q4_0 with --pure: a head of 4 bits, too). Prints medians of the rounds in tokens per second, and ours over theirs.
"""

import argparse
import json
import statistics
import subprocess


def output(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def ours(args, bits):
    command = [args.loquat, "bench", "--model", args.model, "--device", "cpu", "--quant", bits, "--json"]
    result = output(command + ["--prompt", str(args.prompt), "--repeat", "8"])
    rows = {row["name"]: row["tokens"] / row["median_s"] for row in result["rows"]}
    return rows["read a prompt"], rows["write a token"]


def theirs(args, gguf):
    command = [args.llama_bench, "-m", gguf, "-t", str(args.threads), "-r", "1", "-o", "json"]
    # Tokens are written behind the prompt, as ours are.
    runs = [["-p", str(args.prompt), "-n", "0"], ["-p", "0", "-n", "32", "-d", str(args.prompt)]]
    return [output(command + run)[-1]["avg_ts"] for run in runs]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pairs", nargs="+", metavar="BITS=FILE.gguf")
    parser.add_argument("--model", required=True)
    parser.add_argument("--loquat", default="target/release/loquat")
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(f"{'':6} {'':16} {'loquat':>8} {'llama.cpp':>9} {'ratio':>6}")
    for bits, gguf in (pair.split("=", 1) for pair in args.pairs):
        rounds = [(ours(args, bits), theirs(args, gguf)) for _ in range(args.rounds)]
        for i, name in enumerate(["read a prompt", "write a token"]):
            us, them = (statistics.median(turn[who][i] for turn in rounds) for who in range(2))
            print(f"{bits:6} {name:16} {us:8.1f} {them:9.1f} {us / them:6.2f}", flush=True)


if __name__ == "__main__":
    main()
