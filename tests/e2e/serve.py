#!/usr/bin/env python3
"""serve.py METRALE: `metrale serve` as a client sees it, with the default model and the standard library alone.

Each function named test_ is a test; they share one server unless they start their own. Exits 77 when this machine has no
default model or the binary no kernels.
"""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

BINARY = sys.argv[1]
# The settings of whoever runs the tests are not the tests'.
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("METRALE_")}
DEADLINE = 120  # seconds for anything at all, so that a fault cannot hang the suite


def run(*arguments):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=DEADLINE, env=ENVIRONMENT)


class Server:
    def __init__(self, *flags):
        self.log = []
        self.port = None
        self.process = subprocess.Popen(
            [BINARY, "serve", "default", "--port", "0", *flags],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=ENVIRONMENT,
        )
        for line in self.process.stderr:
            self.log.append(line)
            ready = re.search(r"ready: .* at http://127\.0\.0\.1:(\d+)$", line.strip())
            if ready:
                self.port = int(ready.group(1))
                break
        assert self.port, "no ready line:\n" + "".join(self.log)
        self.drain = threading.Thread(target=self.log.extend, args=(self.process.stderr,), daemon=True)
        self.drain.start()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)

    def call(self, method, path, body=None):
        c = self.connect()
        c.request(method, path, body if body is None else json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        answer = json.loads(r.read() or b"null")
        c.close()
        return r.status, answer

    def post(self, path, **body):
        status, answer = self.call("POST", path, body)
        assert status == 200, answer
        return answer

    def stream(self, path, **body):
        """Yields the JSON of each event, then "[DONE]"."""
        c = self.connect()
        c.request("POST", path, json.dumps(dict(body, stream=True)))
        r = c.getresponse()
        assert r.status == 200 and r.headers["Content-Type"] == "text/event-stream"
        for line in r:
            line = line.strip().decode()
            if line:
                assert line.startswith("data: "), line
                yield line[6:] if line == "data: [DONE]" else json.loads(line[6:])
        c.close()

    def stop(self, signo=signal.SIGTERM):
        self.process.send_signal(signo)
        code = self.process.wait(DEADLINE)
        self.drain.join(DEADLINE)
        return code


CHAT = dict(messages=[{"role": "user", "content": "Name three colours of the rainbow."}], temperature=0, max_tokens=24)


def test_ready_log_tells_target_settings_and_address(s):
    log = "".join(s.log)
    assert "target:" in log and "settings:" in log and "port=0 (flag)" in log, log


def test_models_and_health(s):
    assert s.call("GET", "/health") == (200, {"status": "ready"})
    status, models = s.call("GET", "/v1/models")
    assert status == 200 and models["data"][0]["object"] == "model"
    name = models["data"][0]["id"]
    assert s.call("GET", "/v1/models/" + name)[1]["id"] == name


def test_chat_agrees_in_both_modes(s):
    whole = s.post("/v1/chat/completions", **CHAT)
    text, finish, usage, last = "", None, None, None
    for event in s.stream("/v1/chat/completions", stream_options={"include_usage": True}, **CHAT):
        last = event
        if event == "[DONE]":
            continue
        assert event["object"] == "chat.completion.chunk"
        for choice in event["choices"]:
            text += choice["delta"].get("content", "")
            finish = choice["finish_reason"] or finish
        usage = event["usage"] or usage
    assert last == "[DONE]"
    assert text == whole["choices"][0]["message"]["content"] and text
    assert finish == whole["choices"][0]["finish_reason"]
    assert usage == whole["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_completion_continues_sensibly(s):
    answer = s.post("/v1/completions", prompt="The capital of France is", temperature=0, max_tokens=4)
    assert "Paris" in answer["choices"][0]["text"], answer


def test_stop_string_ends_the_text(s):
    answer = s.post("/v1/completions", prompt="1 2 3 4 5 6", temperature=0, max_tokens=30, stop=[" 9"])
    text = answer["choices"][0]["text"]
    assert "9" not in text and answer["choices"][0]["finish_reason"] == "stop", answer


def test_neighbours_do_not_change_an_answer(s):
    prompts = ["Once upon a time", "The sea is", "A list of fruits:", "In the year 2000"]
    alone = [s.post("/v1/completions", prompt=p, temperature=0, max_tokens=16) for p in prompts]
    together = [None] * len(prompts)

    def ask(i):
        together[i] = s.post("/v1/completions", prompt=prompts[i], temperature=0, max_tokens=16)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(DEADLINE)
    assert [a["choices"] for a in alone] == [t["choices"] for t in together]


def test_seed_repeats(s):
    ask = dict(prompt="Once", temperature=1, max_tokens=12)
    one, two = (s.post("/v1/completions", seed=7, **ask)["choices"] for _ in range(2))
    assert one == two
    assert any(s.post("/v1/completions", seed=k, **ask)["choices"] != one for k in range(8, 12))


def test_bad_requests_are_400_and_harm_nobody(s):
    bad = [{"prompt": [10**9]}, {"prompt": "x", "temperature": "hot"}, {"prompt": "x", "n": 2}]
    for body in bad:
        status, answer = s.call("POST", "/v1/completions", body)
        assert status == 400 and answer["error"]["message"], (body, answer)
    status, answer = s.call("POST", "/v1/completions", {"prompt": "word " * 20000})
    assert status == 400 and answer["error"]["code"] == "context_length_exceeded", answer
    assert s.call("GET", "/nowhere")[0] == 404
    assert s.call("GET", "/v1/completions")[0] == 405
    assert s.post("/v1/completions", prompt="x", max_tokens=1)


def test_client_that_leaves_frees_its_seat(s):
    for _ in range(12):  # more than there are seats
        body = json.dumps({"prompt": "Once", "max_tokens": 4000, "ignore_eos": True, "stream": True}).encode()
        c = socket.create_connection(("127.0.0.1", s.port))
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        c.recv(100)
        c.close()
    begin = time.monotonic()
    s.post("/v1/completions", prompt="x", max_tokens=1)
    assert time.monotonic() - begin < 10  # one of those answers alone would take longer


def resident_kib(s):
    with open("/proc/%d/status" % s.process.pid) as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


def test_memory_of_a_large_request_goes_back_before_its_answer_ends(s):
    s.post("/v1/completions", prompt="a", max_tokens=1)
    before = resident_kib(s)
    filler = [[]] * (7 << 18)  # hundreds of MiB as a tree
    events = s.stream("/v1/completions", prompt="a", max_tokens=500, ignore_eos=True, filler=filler)
    next(events)
    assert resident_kib(s) < before + (64 << 10), (before, resident_kib(s))
    assert sum(1 for _ in events) > 1


def test_port_in_use_is_one_sentence(s):
    p = run("serve", "default", "--port", str(s.port))
    assert p.returncode == 2 and "is in use" in p.stderr.splitlines()[-1], p.stderr


def test_sigterm_finishes_what_runs(_):
    s = Server("--grace", "60")
    events = s.stream("/v1/completions", prompt="Once upon a time", max_tokens=150, ignore_eos=True)
    next(events)
    s.process.send_signal(signal.SIGTERM)
    rest = list(events)
    assert rest[-1] == "[DONE]" and rest[-2]["choices"][0]["finish_reason"] == "length"
    assert s.process.wait(DEADLINE) == 0


def main():
    probe = run("tokenize", "default", "--text", "x")
    if probe.returncode != 0:
        print(probe.stderr.strip())
        if "without kernels" in probe.stderr or "`./dev setup`" in probe.stderr:
            return 77
        return 1
    server = Server("--max-seqs", "4")
    failed = 0
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            try:
                test(server)
                print("ok    ", name, flush=True)
            except Exception as e:  # a test's failure is a line, and the next test runs
                failed += 1
                print("FAILED", name, "line", e.__traceback__.tb_next and e.__traceback__.tb_next.tb_lineno, repr(e))
    if server.stop() != 0:
        failed += 1
        print("FAILED the server's exit status\n", "".join(server.log))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
