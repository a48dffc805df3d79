// The form of a new job.

import { call } from "./api.js";
import { element } from "./element.js";
import { clearProblem, sayAt } from "./problems.js";

const $ = (id) => document.getElementById(id);
const INPUTS = { source: "source-store", out: "out-store", objects: "phrases" };

let last = { text: null, key: null }; // what was sent last, and the Idempotency-Key that it had
let sending = false;

/** Offers the stores of `/v1/stores`: any as a source, those that may be written to for results. */
export function offerStores(stores) {
  const sources = [...stores].sort((a, b) => a.write - b.write); // what may only be read is meant to be
  offer($("source-store"), sources.map(({ name }) => [name, name]));
  const writable = stores.filter(({ write }) => write);
  offer($("out-store"), writable.length ? writable.map(({ name }) => [name, name]) : [["", "none may be written to"]]);
}

/** Offers the models of `/v1/models`. */
export function offerModels(models) {
  offer($("model"), [["", "The service's own"], ...models.map(({ name }) => [name, name])]);
}

/** Submits what the form says: the new job, or null when something was wrong, which is said then. */
export async function submit() {
  if (sending) return null;
  clearProblem();
  const body = read();
  if (!body.out.store) {
    sayAt("out-store", 'No store may be written to. The operator of the service adds "write": true to one in POINTBOX_STORES.');
    return null;
  }
  if (!body.objects.length && !body.source.manifest) {
    sayAt("phrases", "Write what to look for, such as: red circle");
    return null;
  }
  const text = JSON.stringify(body);
  if (last.text !== text) last = { text, key: random() }; // sent again after a failure, it is the same job
  sending = true;
  try {
    const headers = { "Content-Type": "application/json", "Idempotency-Key": last.key };
    const job = await (await call("v1/jobs", { method: "POST", body: text, headers })).json();
    last = { text: null, key: null };
    return job;
  } finally {
    sending = false;
  }
}

/** Says what the service found wrong, at the field that it is about. */
export function showRefusal({ message, detail, field = "" }) {
  const [first] = field.split("[");
  const id = INPUTS[first] ?? first.replace(".", "-");
  if ($(id) === null) sayAt(undefined, message);
  else sayAt(id, detail);
}

function read() {
  const value = (id) => $(id).value.trim();
  const body = {
    source: { store: value("source-store"), prefix: value("source-prefix") },
    out: { store: value("out-store"), prefix: value("out-prefix") },
    task: document.querySelector("[name=task]:checked").value,
    objects: $("phrases").value.split("\n").map((line) => line.trim()).filter((line) => line),
    format: value("format"),
  };
  if (value("source-manifest")) body.source.manifest = value("source-manifest");
  if (value("model")) body.model = value("model");
  for (const name of ["max_objects", "min_score", "shard_size"]) {
    if (value(name)) body[name] = Number(value(name));
  }
  return body;
}

function offer(select, pairs) {
  const before = select.value;
  select.replaceChildren(...pairs.map(([value, textContent]) => element("option", { value, textContent })));
  select.value = before;
  if (select.selectedIndex < 0) select.selectedIndex = 0;
}

function random() {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID is missing over plain http
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
