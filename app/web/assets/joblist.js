// The list of jobs, newest first.

import { call } from "./api.js";
import { element } from "./element.js";
import { countsOf, placeOf, titleOf } from "./words.js";

const $ = (id) => document.getElementById(id);

export class JobList {
  constructor() {
    this.jobs = new Map(); // by id
    this.next = null; // the id before which older ones are
    this.older = false; // whether any were asked for
    this.known = false; // whether the service has told how many there are
    this.newest = new Set(); // the ids that the latest answer had
    this.cards = new Map();
  }

  /** Knows these as they are now. */
  take(jobs) {
    for (const job of jobs) this.jobs.set(job.id, job);
  }

  /** Asks for the newest jobs. Throws a Problem. */
  async refresh() {
    const page = await (await call("v1/jobs")).json();
    if (!this.older) this.next = page.next;
    this.newest = new Set(page.jobs.map(({ id }) => id));
    this.known = true;
    this.take(page.jobs);
  }

  /** Asks for the jobs before those that are shown. Throws a Problem. */
  async more() {
    const page = await (await call(`v1/jobs?before=${this.next}`)).json();
    this.older = true;
    this.next = page.next;
    this.take(page.jobs);
  }

  clear() {
    this.jobs.clear();
    this.older = this.known = false;
    this.next = null;
  }

  /** Draws them; the job with the id `chosen` is marked. */
  show(chosen) {
    const jobs = [...this.jobs.values()].sort((a, b) => (a.created_at < b.created_at ? 1 : -1));
    const cards = jobs.map((job) => this.card(job, job.id === chosen));
    const shown = $("cards").children;
    if (cards.length !== shown.length || cards.some((card, at) => card !== shown[at])) $("cards").replaceChildren(...cards);
    $("none").hidden = !this.known || jobs.length > 0;
    $("older").hidden = this.next === null;
  }

  /** What can change by itself is drawn anew in the card that is there, which keeps its focus. */
  card(job, chosen) {
    if (!this.cards.has(job.id)) this.cards.set(job.id, cardOf(job));
    const item = this.cards.get(job.id);
    const link = item.firstChild;
    if (chosen) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    showState(link.querySelector(".state"), job);
    showProgress(link.querySelector("progress"), job);
    link.querySelector(".counts").textContent = countsOf(job) || job.reason;
    return item;
  }
}

/** The state as a word with its colour. */
export function showState(place, { state }) {
  place.textContent = state;
  place.dataset.state = state;
}

/** The bar: empty before the images are counted; gone once a job has ended well. */
export function showProgress(bar, { state, progress }) {
  bar.hidden = state === "completed";
  bar.max = progress.images || 1;
  bar.value = progress.images === null ? 0 : progress.done;
}

function cardOf(job) {
  const { request } = job;
  const line = element("span", { className: "bar" },
    element("b", { textContent: titleOf(job) }),
    element("span", { className: "state" }));
  const places = element("span", { className: "hint", textContent: `${placeOf(request.source)} → ${placeOf(request.out)}` });
  const bar = element("progress", { "aria-label": "Progress" });
  const counts = element("span", { className: "counts" });
  return element("li", {}, element("a", { className: "card", href: `#${job.id}` }, line, places, bar, counts));
}
