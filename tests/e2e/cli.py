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
    return json.loads(p.stdout)["tokens_hash"]


def test_random_quantised_models_run_the_same_each_time():
    for config, form in (("dense-fp8", "config"), ("moe", "nvfp4"), ("hybrid-moe-nvfp4", "config")):
        assert bench(config, form) == bench(config, form, "--threads", "1"), (config, form)


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
