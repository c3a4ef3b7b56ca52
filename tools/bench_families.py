#!/usr/bin/env python3
"""Decode speed of every architecture beside the machine's copy bandwidth: `metrale bench` on random weights.

    tools/bench_families.py [METRALE] [FORMAT]        (build/release/metrale, q8_0; FORMAT as of `bench --dummy`)

Each architecture is its oracle's config.json with larger dims, so that a model weighs some 100 to 400 MB. One request,
64 prompt and 32 generated tokens; prints a Markdown table. Timings on a shared machine scatter: compare within one run.
"""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
COMMON = {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000,
          "max_position_embeddings": 4096}
DENSE = {"intermediate_size": 2816, "num_hidden_layers": 16}
MOE = {"intermediate_size": 2816, "moe_intermediate_size": 512, "num_hidden_layers": 8, "num_local_experts": 32, "num_experts": 32,
       "n_routed_experts": 32, "num_experts_per_tok": 4, "shared_expert_intermediate_size": 512}
DELTA = {"linear_key_head_dim": 64, "linear_value_head_dim": 64, "linear_num_key_heads": 8, "linear_num_value_heads": 16}
OVER = {
    "gemma3": {"query_pre_attn_scalar": 64, "sliding_window": 512},
    "mistral": {"sliding_window": 1024},
    "gpt_oss": {"intermediate_size": 512, "sliding_window": 128},
    "minimax_m2": {"intermediate_size": 512},
    "olmoe": {"intermediate_size": 512, "num_key_value_heads": 16},
    "deepseek_v3": {"q_lora_rank": 384, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "qk_head_dim": 96,
                    "v_head_dim": 64, "head_dim": 32, "num_key_value_heads": 16},
    "nemotron_h": {"mamba_num_heads": 32, "mamba_head_dim": 64, "ssm_state_size": 64, "n_groups": 8,
                   "moe_shared_expert_intermediate_size": 512},
}


def enlarged(name, config):
    experts = any(k in config for k in ("num_experts", "num_local_experts", "n_routed_experts"))
    new = {**COMMON, **(MOE if experts else DENSE), **DELTA, **OVER.get(name, {})}
    out = {k: new.get(k, v) for k, v in config.items()}
    for key in ("layer_types", "layers_block_type", "no_rope_layers"):
        if isinstance(config.get(key), list):
            layers = new["num_hidden_layers"]
            pattern = config[key]
            out[key] = [pattern[i % len(pattern)] for i in range(layers)]
    return out


def main():
    metrale = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build/release/metrale")
    fmt = sys.argv[2] if len(sys.argv) > 2 else "q8_0"
    oracles = os.path.join(ROOT, "tests/data/oracles")
    print(f"| architecture ({fmt}) | MB a token | decode tok/s | prefill tok/s | GB/s read | copy GB/s | share |")
    print("|---|---|---|---|---|---|---|")
    for name in sorted(os.listdir(oracles)):
        with open(os.path.join(oracles, name, "config.json"), encoding="utf-8") as f:
            config = enlarged(name, json.load(f))
        with tempfile.TemporaryDirectory() as tmp:
            path = os.path.join(tmp, "config.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump(config, f)
            run = subprocess.run([metrale, "bench", path, "--dummy", fmt, "--prompt", "64", "--gen", "32", "--json"],
                                 capture_output=True, text=True, check=False)
        if run.returncode:
            print(f"| {name} | {run.stderr.strip()} | | | | | |")
            continue
        r = json.loads(run.stdout)
        row, decode = r["rows"][0], r["rows"][0]["decode_tok_s"]["median"]
        print(f"| {name} | {row['bytes_token'] / 1e6:.0f} | {decode:.0f} | {row['prefill_tok_s']['median']:.0f} | "
              f"{row['bytes_token'] * decode / 1e9:.1f} | {r['copy_gb_s']:.1f} | {100 * row['share_of_copy']:.0f}% |", flush=True)


if __name__ == "__main__":
    main()
