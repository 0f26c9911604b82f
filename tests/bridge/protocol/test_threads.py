"""Threads that use the codec for the first time at once."""

import subprocess
import sys

import pytest

from openresponses_bridge.protocol.codec import decode_response, encode

SCRIPT = """
import sys, threading
from openresponses_bridge.protocol.codec import decode_item, decode_request, decode_response

sys.setswitchinterval(1e-6)
response, item = sys.argv[1:]
work = [(decode_response, response), (decode_item, item), (decode_request, '{"model":"m","input":"x"}')]
begin = threading.Barrier(12)

def decode(number):
    begin.wait()
    for function, data in work[number % 3:] + work[:number % 3]:
        function(data)

threads = [threading.Thread(target=decode, args=(number,)) for number in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
PART = '{"type":"output_text","text":"a","annotations":[]}'
ITEM = f'{{"type":"message","id":"m","role":"assistant","status":"completed","content":[{PART}]}}'


@pytest.mark.untraced
def test_what_is_built_at_the_first_use_is_built_by_one_thread() -> None:
    response = encode(decode_response(f'{{"id":"resp_1","status":"completed","output":[{ITEM}]}}')).decode()
    item = encode(decode_response(f'{{"output":[{ITEM}]}}').output[0]).decode()
    for _ in range(8):
        done = subprocess.run([sys.executable, "-c", SCRIPT, response, item], capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
