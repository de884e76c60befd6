#!/usr/bin/env python3
"""Several answers at a time against one at a time, and llama.cpp's parallel decoding beside it, in turns.

    cargo build --release
    tests/bench/parallel.py --model DIR --quant q4 [--llama-batched-bench llama-batched-bench --gguf Q4_0.gguf]

Every record asks for the same number of tokens, so both ways write the same text. Prints medians of the rounds in
tokens per second over the whole run, without the start of the program, and the ratio of the two.
"""

import argparse
import json
import statistics
import subprocess
import time

TOPICS = ["rivers", "bread", "clocks", "whales", "bridges", "salt", "kites", "glass"]


def ours(args, jobs):
    records = [{"prompt": f"Tell me about {TOPICS[i % 8]} ({i}).", "id": i} for i in range(args.records)]
    command = [args.loquat, "batch", "--model", args.model, "--device", "cpu", "--quant", args.quant, "-j", str(jobs)]
    command += ["--max-tokens", str(args.tokens), "--temperature", "0", "--think", "off", "--out", "jsonl"]
    text = "".join(json.dumps(record) + "\n" for record in records)

    def run(text):
        started = time.monotonic()
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        return time.monotonic() - started, sum(answer["usage"]["completion"] for answer in answers)

    start, few = run(json.dumps({"prompt": "x", "params": {"max_tokens": 1}}) + "\n")
    seconds, tokens = run(text)
    return (tokens - few) / (seconds - start)


def theirs(args, jobs):
    command = [args.llama_batched_bench, "-m", args.gguf, "-t", str(args.threads), "-c", "4096"]
    command += ["-npp", "16", "-ntg", str(args.tokens), "-npl", str(jobs), "--output-format", "jsonl"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return json.loads([line for line in lines if line.startswith("{")][-1])["speed"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--quant", default="q4")
    parser.add_argument("--loquat", default="target/release/loquat")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--records", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama-batched-bench")
    parser.add_argument("--gguf")
    args = parser.parse_args()
    who = {"loquat": ours} | ({"llama.cpp": theirs} if args.llama_batched_bench else {})
    rounds = [{(name, jobs): run(args, jobs) for name, run in who.items() for jobs in (1, args.jobs)} for _ in range(args.rounds)]
    for name in who:
        one, many = (statistics.median(turn[name, jobs] for turn in rounds) for jobs in (1, args.jobs))
        print(f"{name:10} 1 at a time {one:7.1f} tok/s, {args.jobs} at a time {many:7.1f} tok/s: {many / one:.2f}x")


if __name__ == "__main__":
    main()
