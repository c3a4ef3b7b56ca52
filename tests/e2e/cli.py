#!/usr/bin/env python3
"""cli.py METRALE: what the commands do with the descriptors, settings and arguments that a careless user gives them.

Needs no model but the small ones in tests/data. Each function named test_ is a test. Exits 77 when the binary has no
kernels.
"""
import json
import os
import subprocess
import sys
import tempfile

BINARY = sys.argv[1]
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
MODEL = os.path.join(DATA, "broken", "gguf-ok", "model.gguf")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("METRALE_")}
DEADLINE = 120


def run(*arguments, redirect="", stdin=b"", variables=None):
    """The command through sh, so that `redirect` may close descriptors."""
    return subprocess.run(
        ["sh", "-c", 'exec "$@" ' + redirect, "sh", BINARY, *arguments],
        input=stdin,
        capture_output=True,
        timeout=DEADLINE,
        env=dict(ENVIRONMENT, **(variables or {})),
    )


def refused(p, *words):
    assert p.returncode == 2, (p.returncode, p.stderr)
    for word in words:
        assert word in p.stderr.decode("utf-8", "replace"), p.stderr


REPORTS = (["version"], ["--help"], ["kernels", "list"], ["tokenize", MODEL, "--text", "a"], ["check", MODEL])


def test_report_that_cannot_be_written_is_a_failure():
    for command in REPORTS:
        refused(run(*command, redirect=">/dev/full"), "standard output")


def test_closed_output_is_a_failure():
    for command in REPORTS:
        refused(run(*command, redirect=">&-"), "standard output")


def test_closed_error_output_changes_no_report():
    for command in REPORTS:
        assert run(*command, redirect="2>&-").stdout == run(*command).stdout != b""


def test_closed_input_is_not_the_model_file():
    refused(run("tokenize", MODEL, redirect="<&-"), "standard input")
    refused(run("template", MODEL, redirect="<&-"), "standard input")
    refused(run("run", MODEL, redirect="<&-"), "standard input")


def test_settings_of_the_build_are_no_concern_of_a_run():
    for name in ("TARGET_HW", "TARGET_MODEL", "TARGET_QUANT", "SKIP_BUILD", "NVCC"):
        assert run("check", MODEL, variables={"METRALE_" + name: "x"}).returncode == 0, name
    refused(run("check", MODEL, variables={"METRALE_NVC": "x"}), "METRALE_NVC is no setting")


def test_numbers_do_not_wrap():
    refused(run("perplexity", MODEL, "--file", MODEL, "--ctx", "4294967360"), "--ctx")
    refused(run("perplexity", MODEL, "--file", MODEL, "--ctx=-4294967232"), "--ctx")
    refused(run("run", MODEL, "a", "--max-tokens=-18446744073709551615"), "--max-tokens")
    refused(run("run", MODEL, "a", "--seed", "18446744073709551616"), "--seed")
    refused(run("run", MODEL, "a", "--temperature", "2.5"), "from 0 to 2")


def test_system_message_that_is_no_text_is_not_dropped():
    refused(run("run", MODEL, "a", "--max-tokens", "1", "--system", b"\xff"), "--system")


def test_dummy_weights_do_not_stand_in_for_real_ones_in_silence():
    refused(run("bench", MODEL, "--dummy", "bf16"), "--dummy")


def bench(config, form, *more):
    p = run("bench", os.path.join(DATA, "dummy", config + ".json"), "--dummy", form, "--prompt", "128", "--gen", "256",
            "--repeat", "1", "--json", *more)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)["rows"][0]["tokens_hash"]


def test_random_quantised_models_run_the_same_each_time():
    for config, form in (("dense-fp8", "config"), ("moe", "nvfp4"), ("hybrid-moe-nvfp4", "config")):
        assert bench(config, form) == bench(config, form, "--threads", "1"), (config, form)


MOE = (os.path.join(DATA, "dummy", "moe.json"), "--dummy", "bf16", "--prompt", "20", "--gen", "6", "--repeat", "1")


def test_rows_of_one_load_are_those_of_loads_of_their_own():
    both = json.loads(run("bench", *MOE, "--concurrency", "1,3", "--prefill", "50", "--json").stdout)
    alone = json.loads(run("bench", *MOE, "--concurrency", "3", "--json").stdout)
    assert [r["name"] for r in both["rows"]] == ["20+6 x 1", "20+6 x 3", "50+16 x 1"]
    assert both["rows"][1]["tokens_hash"] == alone["rows"][0]["tokens_hash"]
    assert both["kernels"] and both["plans"][0]["digest"] and both["start"]["ready_s"] >= both["start"]["load_s"] > 0
    refused(run("bench", *MOE, "--concurrency", "1,x"), "--concurrency")
    refused(run("bench", *MOE, "--kv-tokens", "5"), "--kv-tokens 5", "16")


def test_kv_cache_of_0_tokens_is_what_the_sequences_can_use():
    r = json.loads(run("bench", *MOE, "--concurrency", "3", "--kv-tokens", "0", "--max-len", "100", "--json").stdout)
    assert r["model"]["max_len"] == 100, r["model"]
    assert r["model"]["kv_blocks"] == 4 * 7, r["model"]  # the rung that holds three sequences holds four


def test_records_are_set_side_by_side():
    with tempfile.TemporaryDirectory() as d:
        old, new = os.path.join(d, "old"), os.path.join(d, "new")
        for path, more in ((old, ()), (new, ("--max-rows", "16"))):
            p = run("bench", *MOE, "--json", *more)
            with open(path, "wb") as f:
                f.write(p.stdout)
        p = run("bench", "--compare", old, "--compare", new)
        text = p.stdout.decode()
        assert p.returncode == 0, p.stderr
        assert "differs  command" in text and "differs  plan         extend 512: only the first has it" in text, text
        assert any(x.startswith("20+6 x 1") and " decode_tok_s " in x and x.endswith("x") for x in text.split("\n")), text
        assert b"20+6 x 1" in run("bench", *MOE, "--compare", old).stdout
        refused(run("bench", "--compare", MOE[0], "--compare", new), "moe.json", "no record")
        refused(run("bench", "--compare", old), "MODEL is needed")


def test_launches_are_timed_one_by_one():
    r = json.loads(run("bench", *MOE, "--steps", "--json").stdout)
    step, parts = r["launches"][0], [x for x in r["launches"] if x["block"] != "all"]
    assert step["nodes"] == "step" and r["rows"] == []
    assert {x["at"] for x in parts} == {"1 x 1 rows behind 23", "1 x 20 rows behind 0"}
    assert any(x["op"] == "lm_head" and x["tflops"] > 0 and x["gb_s"] > 0 for x in parts)


def test_name_of_the_model_is_text():
    for name in ("", b"\xff"):
        refused(run("serve", MODEL, "--port", "0", "--name", name), "--name")


def test_empty_directory_is_no_kernel_tree_without_faults():
    with tempfile.TemporaryDirectory() as empty:
        refused(run("kernels", "check", "--tree", empty), "is no kernel tree")


def main():
    probe = run("check", MODEL)
    if b"without kernels" in probe.stderr:
        print(probe.stderr.decode().strip())
        return 77
    failed = 0
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            try:
                test()
                print("ok    ", name, flush=True)
            except Exception as e:  # a test's failure is a line, and the next test runs
                failed += 1
                print("FAILED", name, "line", e.__traceback__.tb_next and e.__traceback__.tb_next.tb_lineno, repr(e))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
