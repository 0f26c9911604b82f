"""A scripted `codex app-server`: a separate program, which the tests run in the place of Codex.

The last text of a turn's input is a command, such as `say hello`, `ask`, `wait` or `die`; `PLAYS` has all of
them. The program writes its arguments and what it is sent to the file that `CODEX_LOG` names. `CODEX_FAULT`
names what it does wrong from the start.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

FAULT = os.environ.get("CODEX_FAULT", "")
LOG = os.environ.get("CODEX_LOG", "")
_lock = threading.Lock()


def note(**what: Any) -> None:
    """Write a line to the log; a brief log has only the starts."""
    if LOG and ("argv" in what or not os.environ.get("CODEX_BRIEF")):
        with open(LOG, "a", encoding="utf-8") as log:
            log.write(json.dumps({"pid": os.getpid(), **what}) + "\n")


def send(message: dict[str, Any]) -> None:
    raw(json.dumps(message).encode() + b"\n")


def raw(data: bytes) -> None:
    with _lock:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


class Turn:
    """One turn of a Codex thread, played in a thread of the program."""

    def __init__(self, thread: str, number: int, words: list[str]) -> None:
        self.thread = thread
        self.id = f"turn_{thread}_{number}"
        self.words = words
        self.stopped = threading.Event()
        self.decisions: dict[str, str] = {}
        self.decided = threading.Condition()

    def notify(self, method: str, **params: Any) -> None:
        send({"method": method, "params": {"threadId": self.thread, "turnId": self.id, **params}})

    def say(self, text: str, item: str = "msg") -> None:
        item_id = f"{item}_{self.id}"
        message = {"type": "agentMessage", "id": item_id, "text": ""}
        self.notify("item/started", item=message)
        for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
            self.notify("item/agentMessage/delta", itemId=item_id, delta=piece)
        self.notify("item/completed", item={**message, "text": text})

    def end(self, status: str = "completed", **more: Any) -> None:
        counts = {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7}
        self.notify("thread/tokenUsage/updated", tokenUsage={"total": counts, "last": counts})
        turn = {"id": self.id, "items": [], "status": status, "error": None, **more}
        send({"method": "turn/completed", "params": {"threadId": self.thread, "turn": turn}})

    def run(self) -> None:
        turn = {"id": self.id, "items": [], "status": "inProgress"}
        send({"method": "turn/started", "params": {"threadId": self.thread, "turn": turn}})
        play, *rest = self.words or ["say"]
        PLAYS.get(play, say)(self, rest)


def say(turn: Turn, words: list[str]) -> None:
    turn.say(" ".join(words) or "Hello.")
    turn.end()


def history(turn: Turn, _words: list[str]) -> None:
    """The thread's earlier input, as JSON."""
    turn.say(json.dumps(threads[turn.thread]["items"]))
    turn.end()


def started_with(turn: Turn, _words: list[str]) -> None:
    turn.say(json.dumps(threads[turn.thread]["params"]))
    turn.end()


def settings(turn: Turn, _words: list[str]) -> None:
    turn.say(json.dumps(threads[turn.thread]["turn"]))
    turn.end()


def environment(turn: Turn, _words: list[str]) -> None:
    turn.say(json.dumps(sorted(os.environ)))
    turn.end()


def run_command(turn: Turn, words: list[str]) -> None:
    item = {
        "type": "commandExecution",
        "id": f"cmd_{turn.id}",
        "command": " ".join(words),
        "cwd": os.getcwd(),
    }
    turn.notify("item/started", item={**item, "status": "inProgress"})
    turn.notify("item/commandExecution/outputDelta", itemId=item["id"], delta="ran\n")
    done = {**item, "status": "completed", "aggregatedOutput": "ran\n", "exitCode": 0}
    turn.notify("item/completed", item=done)
    turn.say("Done.")
    turn.end()


def ask(turn: Turn, words: list[str]) -> None:
    """Ask for permission for a command, as many times at once as the text says, and report the decision."""
    times = int(words[0]) if words else 1
    item = {"type": "commandExecution", "id": f"cmd_{turn.id}", "command": "rm -r x", "status": "inProgress"}
    turn.notify("item/started", item=item)
    request_ids = [f"ask_{turn.id}_{number}" for number in range(times)]
    with turn.decided:
        questions[turn.id] = turn
        params = {"threadId": turn.thread, "turnId": turn.id, "itemId": item["id"], "command": "rm -r x"}
        request = {"method": "item/commandExecution/requestApproval", "params": params}
        # they are sent at once: a client that has read one of them has read all
        raw(b"".join(json.dumps({"id": each, **request}).encode() + b"\n" for each in request_ids))
        turn.decided.wait_for(lambda: len(turn.decisions) == times or turn.stopped.is_set())
    if turn.stopped.is_set():
        return
    decisions = [turn.decisions[each] for each in request_ids]
    status = "completed" if decisions[0] == "accept" else "declined"
    turn.notify("item/completed", item={**item, "status": status, "aggregatedOutput": "", "exitCode": 0})
    turn.say(f"Decided: {' '.join(decisions)}")
    turn.end()


def ask_oddly(turn: Turn, _words: list[str]) -> None:
    """Ask for something that no client of this kind supports, and for an unknown thread."""
    with turn.decided:
        questions[turn.id] = turn
        params = {"threadId": turn.thread, "turnId": turn.id}
        send({"id": f"ask_{turn.id}_0", "method": "attestation/generate", "params": params})
        stray = {"threadId": "another", "turnId": "t", "command": "x"}
        request = "item/commandExecution/requestApproval"
        send({"id": f"ask_{turn.id}_1", "method": request, "params": stray})
        turn.decided.wait_for(lambda: len(turn.decisions) == 2)
    turn.say(" ".join(turn.decisions[each] for each in sorted(turn.decisions)))
    turn.end()


def wait(turn: Turn, words: list[str]) -> None:
    """Send something and then wait to be interrupted."""
    turn.notify("item/agentMessage/delta", itemId=f"msg_{turn.id}", delta="Wait")
    if "deaf" in words:
        time.sleep(60)
    turn.stopped.wait(60)


def flood(turn: Turn, words: list[str]) -> None:
    """Send more than a client reads."""
    for _ in range(int(words[0])):
        turn.notify("item/agentMessage/delta", itemId=f"msg_{turn.id}", delta="x" * 1000)
    note(method="flooded")
    turn.end()


def die(turn: Turn, words: list[str]) -> None:
    turn.notify("item/agentMessage/delta", itemId=f"msg_{turn.id}", delta="Wai")
    time.sleep(0.02)
    os._exit(int(words[0]) if words else 3)


def lie(turn: Turn, words: list[str]) -> None:
    """Send lines that are not messages, unexpected answers, and turns and threads of other clients."""
    raw(b'not JSON at all\n\xff\xfe\n[1, 2]\n{"id": 1e999}\n' + b"[" * 5000 + b"\n\n\r\n")
    send({"id": 999_999, "result": {}})
    send({"id": "x", "result": {}})
    send({"method": "bridge/turnPaused", "params": {"threadId": turn.thread, "items": [{"id": "a"}]}})
    for other in ({"turnId": "another"}, {"threadId": "another"}):
        params = {"threadId": turn.thread, "turnId": turn.id, **other, "itemId": "i", "delta": "Lies"}
        send({"method": "item/agentMessage/delta", "params": params})
    turn.say("Truth.")
    turn.end()


def new_kinds(turn: Turn, words: list[str]) -> None:
    """Send notifications of kinds that only a newer Codex has."""
    for name in ("turn/invented", "turn/invented", "thread/invented", "codex/event/invented"):
        turn.notify(name)
    say(turn, words)


def endless_line(turn: Turn, _words: list[str]) -> None:
    while not turn.stopped.is_set():  # what the program answers meanwhile may end the line once
        raw(b"x" * 65_536)


def long_line(turn: Turn, _words: list[str]) -> None:
    turn.notify("item/agentMessage/delta", itemId=f"msg_{turn.id}", delta="x" * 200_000)
    turn.stopped.wait(60)


def fail(turn: Turn, _words: list[str]) -> None:
    error = {"message": "The model is away.", "codexErrorInfo": "serverOverloaded", "additionalDetails": None}
    turn.end("failed", error=error)


def spawn(turn: Turn, _words: list[str]) -> None:
    """Leave a child process running that ignores the end of its input."""
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    say(turn, [str(child)])


PLAYS: dict[str, Callable[[Turn, list[str]], None]] = {
    "say": say,
    "history": history,
    "started": started_with,
    "settings": settings,
    "environment": environment,
    "run": run_command,
    "ask": ask,
    "oddly": ask_oddly,
    "wait": wait,
    "flood": flood,
    "die": die,
    "lie": lie,
    "newer": new_kinds,
    "endless": endless_line,
    "long": long_line,
    "fail": fail,
    "spawn": spawn,
}
threads: dict[str, dict[str, Any]] = {}
questions: dict[str, Turn] = {}
running: dict[str, Turn] = {}
made = 0


def start_thread(params: dict[str, Any]) -> Any:
    global made
    made += 1
    thread = f"{os.getpid()}-{made}"
    threads[thread] = {"items": [], "params": params, "turns": 0, "turn": {}}
    return {"thread": {"id": thread}}


def inject(params: dict[str, Any]) -> Any:
    threads[params["threadId"]]["items"] += params["items"]
    return {}


def start_turn(params: dict[str, Any]) -> Any:
    thread = threads[params["threadId"]]
    texts = [part["text"] for part in params["input"] if part["type"] == "text"]
    words = texts[-1].split() if texts else []
    if words[:1] == ["refuse"]:
        raise ValueError("no such model")
    if words[:1] == ["vanish"]:
        os._exit(3)
    thread["turns"] += 1
    thread["turn"] = params
    turn = running[params["threadId"]] = Turn(params["threadId"], thread["turns"], words)
    if words[:1] != ["mute"]:
        threading.Thread(target=turn.run, daemon=True).start()
    return {"turn": {"id": turn.id, "items": [], "status": "inProgress"}}


def interrupt(params: dict[str, Any]) -> Any:
    turn = running[params["threadId"]]
    if "deaf" in turn.words:
        return {}
    with turn.decided:
        turn.stopped.set()
        turn.decided.notify_all()
    turn.end("interrupted")
    return {}


def forget(params: dict[str, Any]) -> Any:
    threads.pop(params["threadId"], None)
    running.pop(params["threadId"], None)
    return {"status": "unsubscribed"}


def list_models(_params: dict[str, Any]) -> Any:
    return {"data": [{"id": "a", "model": "model-a"}, {"id": "b", "model": "model-b"}], "nextCursor": None}


METHODS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "initialize": lambda _params: {"userAgent": "scripted"},
    "thread/start": start_thread,
    "thread/inject_items": inject,
    "turn/start": start_turn,
    "turn/interrupt": interrupt,
    "thread/unsubscribe": forget,
    "model/list": list_models,
}


def answered(message: dict[str, Any]) -> None:
    turn = questions.get(message["id"].removeprefix("ask_").rpartition("_")[0])
    if turn is not None:
        result = message.get("result")
        with turn.decided:
            turn.decisions[message["id"]] = result["decision"] if result else str(message["error"]["code"])
            turn.decided.notify_all()


def main() -> None:
    note(argv=sys.argv[1:], cwd=os.getcwd())
    print("the scripted app-server says hello, key=sk-secret-of-codex", file=sys.stderr, flush=True)
    if FAULT == "exit":
        sys.exit(4)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        method = message.get("method")
        note(
            method=method,
            id=message.get("id"),
            **({"params": message["params"]} if "params" in message else {}),
        )
        if method is None:
            answered(message)
        elif "id" in message and FAULT != "mute":
            try:
                send({"id": message["id"], "result": METHODS[method](message["params"])})
            except Exception as error:
                send({"id": message["id"], "error": {"code": -32600, "message": str(error)}})
    if FAULT == "stays":
        time.sleep(60)
    note(ended=True)


if __name__ == "__main__":
    main()
