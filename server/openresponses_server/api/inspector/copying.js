// A stream's request and events in forms that are used elsewhere. No secret is in any of them.

import { masked, maskedStream } from './masking.js';

const KEY = 'OPENRESPONSES_API_KEY';

const quotedForShell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

export function asCurl(request, base) {
  const body = JSON.stringify(masked({ ...request, stream: true }), null, 2);
  return `curl -N ${quotedForShell(`${base}/v1/responses`)} \\\n  -H 'content-type: application/json' \\\n  -H "authorization: Bearer $${KEY}" \\\n  -d ${quotedForShell(body)}\n`;
}

/** A program for the `openai` package. */
export function asPython(request, base) {
  const { stream: _, ...fields } = masked(request);
  const body = JSON.stringify(JSON.stringify(fields)).replace(/[\u007f-\uffff]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`);
  return `import json
import os

from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(`${base}/v1`)}, api_key=os.environ.get("${KEY}", "none"))
request = json.loads(${body})
for event in client.responses.create(**request, stream=True):
    print(event.type, getattr(event, "delta", ""))
`;
}

/** The stream as server-sent events, for a test's file: `replay`, `validate` and the inspector read it. */
export function asFixture(recording) {
  const frames = maskedStream(recording.events).map(({ event, data }) => `event: ${event.replace(/[\r\n]/g, ' ')}\ndata: ${typeof data === 'string' ? data.replace(/[\r\n]+/g, ' ') : JSON.stringify(data)}\n\n`);
  return `${frames.join('')}${recording.status.value === 'ended' ? 'data: [DONE]\n\n' : ''}`;
}
