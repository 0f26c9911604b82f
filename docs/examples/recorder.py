"""Records what a server streams, as it came, and says what it was:

python recorder.py http://127.0.0.1:8080/v1 capture.sse "Hello!"
"""

import json
import sys
import urllib.request

from openresponses_bridge import ResponseAccumulator, SSEDecoder, StreamValidator, decode_event
from openresponses_bridge.sse import is_done


def record(server: str, path: str, text: str, model: str = "demo") -> ResponseAccumulator:
    """Asks `server` for an answer to `text`, keeps its stream in a file and prints what is wrong with it."""
    body = json.dumps({"model": model, "input": text, "stream": True}).encode()
    request = urllib.request.Request(f"{server}/responses", body, {"content-type": "application/json"})
    frames, validator, accumulator = SSEDecoder(), StreamValidator(), ResponseAccumulator()
    with urllib.request.urlopen(request, timeout=60) as stream, open(path, "wb") as capture:
        while data := stream.read1(65_536):
            capture.write(data)
            for frame in frames.feed(data):
                for violation in validator.feed_frame(frame):
                    print(violation, file=sys.stderr)
                if not is_done(frame):
                    accumulator.feed(decode_event(frame.data))
    for violation in validator.close():
        print(violation, file=sys.stderr)
    return accumulator


if __name__ == "__main__":
    response = record(*sys.argv[1:]).response
    print("nothing came" if response is None else f"{response.id} {response.status}: {response.output_text}")
