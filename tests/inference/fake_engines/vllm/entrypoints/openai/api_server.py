"""A server that stands in for vLLM's: the same module, arguments, addresses and fields.

An answer's tokens are a digest of the prompt, the seed and the temperature, so equal requests have
equal answers; chats are answered as the stand-ins do. Environment variables make it misbehave:

- `FAKE_LOG`: file that every request's body is appended to;
- `FAKE_NOT_READY`: questions after its health that it answers with 503 first;
- `FAKE_DIES_AT_START`: it ends before it listens;
- `FAKE_DIES_AFTER`: answers after which it ends;
- `FAKE_FAILS_AFTER`: answers after which it says 500, and ends a moment later;
- `FAKE_ADDS_BOS`: it puts a second BOS before the prompt;
- `FAKE_ARGUMENTS`: file that it writes its arguments to;
- `FAKE_STARTS`: file that it writes a line to when it begins to start and when it is ready.
"""

import argparse
import hashlib
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BOS, LETTERS, STOP = 2, range(8, 24), 5


def completion(body: dict) -> dict:
    key = json.dumps([body["prompt"], body["seed"], body["temperature"]]).encode()
    digest = hashlib.sha256(key).digest()
    length = min(digest[0] % 8 + 1, body["max_tokens"])
    tokens = [LETTERS[byte % len(LETTERS)] for byte in digest[1 : 1 + length]]
    if length < body["max_tokens"]:
        tokens.append(body["stop_token_ids"][-1])
    read = [BOS] * ("FAKE_ADDS_BOS" in os.environ) + body["prompt"]
    choice = {
        "index": 0,
        "text": "",
        "finish_reason": "stop",
        "token_ids": tokens,
        "prompt_token_ids": read,
    }
    return {"id": "x", "object": "text_completion", "created": 0, "model": "x", "choices": [choice]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    lock = threading.Lock()
    not_ready = int(os.environ.get("FAKE_NOT_READY", "0"))
    answers = 0

    def do_GET(self) -> None:
        if self.path == "/health":
            with Handler.lock:
                Handler.not_ready -= 1
                if Handler.not_ready == -1:
                    note("ready")
                self.reply(503 if Handler.not_ready >= 0 else 200, {})
        else:
            self.reply(200, {"object": "list", "data": [{"id": NAME, "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with Handler.lock:
            if "FAKE_LOG" in os.environ:
                with open(os.environ["FAKE_LOG"], "a", encoding="utf-8") as file:
                    file.write(json.dumps(body | {"key": self.headers["Authorization"]}) + "\n")
            if Handler.answers >= int(os.environ.get("FAKE_DIES_AFTER", "1000000")):
                print("RuntimeError: the engine core is gone", flush=True)
                os._exit(3)
            Handler.answers += 1
            failed = Handler.answers > int(os.environ.get("FAKE_FAILS_AFTER", "1000000"))
        if failed:
            print("RuntimeError: the core is lost", flush=True)
            self.reply(500, {"error": {"message": "see above"}})
            threading.Timer(0.2, os._exit, [0]).start()
            return
        if self.path.endswith("/chat/completions"):
            from stand_in.server import answer

            self.reply(200, answer(body))
        else:
            self.reply(200, completion(body))

    def reply(self, status: int, content: dict) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def note(what: str) -> None:
    if "FAKE_STARTS" in os.environ:
        with open(os.environ["FAKE_STARTS"], "a", encoding="utf-8") as file:
            file.write(f"{what} {NAME} {os.getpid()}\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("model", "served-model-name", "host", "port", "dtype", "max-model-len"):
        parser.add_argument(f"--{name}", required=True)
    for name in (
        *("generation-config", "seed", "tensor-parallel-size", "data-parallel-size"),
        *("gpu-memory-utilization", "kv-cache-memory-bytes", "max-num-seqs"),
        *("default-chat-template-kwargs", "override-generation-config"),
    ):
        parser.add_argument(f"--{name}")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    NAME = given.served_model_name
    note("starts")
    if "FAKE_DIES_AT_START" in os.environ:
        sys.exit("ValueError: head size 16 is not supported")
    if "FAKE_ARGUMENTS" in os.environ:
        with open(os.environ["FAKE_ARGUMENTS"], "w", encoding="utf-8") as file:
            json.dump(vars(given), file)
    # Dozens connect at once, and five wait by default; the others would be turned away.
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer((given.host, int(given.port)), Handler).serve_forever()
