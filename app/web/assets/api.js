// Asks the service, with the key where there is one; whatever goes wrong becomes a Problem.

import { currentKey } from "./key.js";

/** A failure in words. `document` is the service's problem document where there is one. */
export class Problem extends Error {
  constructor(words, document = {}, retryAfter = null) {
    super(words);
    this.status = document.status;
    this.field = document.field;
    this.detail = document.detail ?? words; // for where the title says nothing more
    this.retryAfter = retryAfter; // seconds, or null
  }
}

/** The response of a success. Throws a Problem, or an AbortError when `options.signal` says so. */
export async function call(path, options = {}) {
  const key = currentKey();
  const headers = { ...options.headers, ...(key === null ? {} : { Authorization: `Bearer ${key}` }) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    throw inWords(error, options.body instanceof FormData
      ? "The service cannot be reached, or it refused the picture half-way: is it too large?"
      : "The service cannot be reached.");
  }
  if (response.ok) return response;
  throw await problemOf(response);
}

/** The server-sent events of a response: [name, data] each. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      const blocks = text.split("\n\n");
      text = blocks.pop();
      for (const block of blocks) {
        const fields = new Map(block.split("\n").map((line) => line.split(/: (.*)/, 2)));
        if (fields.has("event")) yield [fields.get("event"), JSON.parse(fields.get("data"))];
      }
    }
  } catch (error) {
    throw inWords(error, "The connection broke before the answer was complete.");
  } finally {
    reader.cancel().catch(() => {}); // hanging up ends the work at the service
  }
}

/** A problem document as a sentence or two for a person. */
export function worded(document, retryAfter = null) {
  const later = retryAfter === null ? "" : ` Try again in ${retryAfter} s.`;
  return new Problem(`${document.title}: ${document.detail}${later}`, document, retryAfter);
}

async function problemOf(response) {
  if (response.headers.get("content-type")?.startsWith("application/problem+json")) {
    return worded(await response.json(), response.headers.get("retry-after"));
  }
  return new Problem(`The service answered with status ${response.status}.`, { status: response.status });
}

function inWords(error, words) {
  return error instanceof TypeError ? new Problem(words) : error; // what fetch throws for the network
}
