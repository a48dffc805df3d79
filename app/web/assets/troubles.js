// The pictures of a job that have no result, by the page.

import { call } from "./api.js";
import { element } from "./element.js";
import { countOf } from "./words.js";

const PAGE = 10;
const STAGES = { read: "reading the file", decode: "decoding the picture", model: "asking the model" };
const $ = (id) => document.getElementById(id);

export class Troubles {
  /** `failed` gets the Problem of a page that did not come. */
  constructor(failed) {
    const turn = (by) => {
      this.offset += by * PAGE;
      this.load().catch(failed);
    };
    $("errors-before").addEventListener("click", () => turn(-1));
    $("errors-after").addEventListener("click", () => turn(1));
  }

  /** Forgets all and shows those of another job from now on. */
  start(job) {
    this.job = job.id;
    this.offset = 0;
    this.seen = 0;
    $("errors").hidden = true;
    $("errors-note").textContent = "";
  }

  /** Asks for the page that is shown where there are more errors than at the last time. Throws a Problem. */
  async refresh(job) {
    const { done, errors } = job.progress;
    if (!errors) $("errors-note").textContent = done ? "None so far." : "";
    if (!errors && job.state === "completed") $("errors-note").textContent = "None.";
    const now = `${errors} ${job.state}`;
    if (!errors || now === this.seen) return;
    this.total = errors;
    await this.load();
    this.seen = now;
  }

  async load() {
    const { job, offset } = this;
    const text = await (await call(`v1/jobs/${job}/errors?offset=${offset}&limit=${PAGE + 1}`)).text();
    if (job !== this.job || offset !== this.offset) return; // another page was wanted meanwhile
    const lines = text.split("\n").filter((line) => line).map((line) => JSON.parse(line));
    const shown = lines.slice(0, PAGE);
    $("errors-rows").replaceChildren(...shown.map(({ key, stage, reason }) => element("tr", {},
      element("td", { textContent: key }),
      element("td", { textContent: STAGES[stage] ?? stage }),
      element("td", { textContent: reason }))));
    $("errors-note").textContent = shown.length ? "" : `${countOf(this.total, "error")}; listed once their part of the job is written.`;
    $("errors").hidden = !shown.length;
    const [before, after, had] = [$("errors-before"), $("errors-after"), document.activeElement];
    before.disabled = offset === 0;
    after.disabled = lines.length <= PAGE;
    if (had.disabled) (had === after ? before : after).focus(); // a disabled button loses it
    $("errors-range").textContent = `${offset + 1} to ${offset + shown.length} of ${this.total.toLocaleString("en")}`;
  }
}
