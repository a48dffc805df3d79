// One job: how far it is, what can be done with it, what it has found.

import { Problem, call } from "./api.js";
import { element } from "./element.js";
import { showProgress, showState } from "./joblist.js";
import { currentKey } from "./key.js";
import { Samples } from "./samples.js";
import { Troubles } from "./troubles.js";
import { countsOf, isOpen, lasting, moment, placeOf, titleOf } from "./words.js";

const $ = (id) => document.getElementById(id);

export class JobView {
  /** `changed` gets the job after it was cancelled or resumed. */
  constructor(changed) {
    this.job = null;
    this.acting = false; // the button itself stays as it is: disabled, it would lose the focus
    this.samples = new Samples();
    this.troubles = new Troubles((problem) => this.fail(problem));
    for (const name of ["cancel", "resume"]) {
      $(name).addEventListener("click", () => this.act(name, changed));
    }
    for (const what of ["results", "errors"]) {
      $(`get-${what}`).addEventListener("click", (event) => this.download(event, what));
    }
  }

  /** Shows a job as it is now. */
  show(job) {
    const other = this.job?.id !== job.id;
    if (other) {
      this.samples.start(job);
      this.troubles.start(job);
      $("job-problem").textContent = "";
      $("said").textContent = "";
      this.tenth = null;
    }
    this.job = job;
    $("job-title").textContent = titleOf(job);
    showState($("job-state"), job);
    showProgress($("job-progress"), job);
    $("job-counts").textContent = countsOf(job) || waiting(job);
    const said = job.reason || job.notes.join(" ");
    $("job-reason").textContent = said;
    $("job-reason").hidden = !said;
    $("job-reason").className = isOpen(job) || !job.reason ? "notice" : "wrong";
    this.offer("cancel", isOpen(job));
    this.offer("resume", job.state === "failed" || job.state === "cancelled");
    for (const what of ["results", "errors"]) {
      $(`get-${what}`).href = `v1/jobs/${job.id}/${what}`;
      $(`get-${what}`).download = `${job.id}-${what}.jsonl`;
      $(`get-${what}`).hidden = !(what === "errors" ? job.progress.errors : job.progress.done - job.progress.errors);
    }
    $("facts").replaceChildren(...factsOf(job).flatMap(([name, value]) => [
      element("dt", { textContent: name }), element("dd", { textContent: value }),
    ]));
    this.say(job);
    this.fill(job);
  }

  async fill(job) {
    try {
      await this.samples.refresh(job);
      await this.troubles.refresh(job);
    } catch (problem) {
      this.fail(problem);
    }
  }

  fail(problem) {
    if (!(problem instanceof Problem)) throw problem;
    $("job-problem").textContent = problem.message;
  }

  /** A button that goes while it has the focus leaves it to the title. */
  offer(name, possible) {
    if (!possible && document.activeElement === $(name)) $("job-title").focus();
    $(name).hidden = !possible;
  }

  /** For those who listen: the state, and every tenth of the way. */
  say(job) {
    const { images, done } = job.progress;
    const tenth = `${job.state} ${images ? Math.floor((10 * done) / images) : 0}`;
    if (this.tenth !== null && tenth !== this.tenth) $("said").textContent = `${job.state}: ${countsOf(job)}`;
    this.tenth = tenth;
  }

  async act(name, changed) {
    if (this.acting) return;
    const { id } = this.job;
    this.acting = true;
    $("job-problem").textContent = "";
    try {
      changed(await (await call(`v1/jobs/${id}/${name}`, { method: "POST" })).json());
    } catch (problem) {
      this.fail(problem);
    } finally {
      this.acting = false;
    }
  }

  /** A link sends no key: with one, the page fetches the file and hands it over. */
  async download(event, what) {
    if (currentKey() === null) return;
    event.preventDefault();
    const link = $(`get-${what}`);
    $("job-problem").textContent = "";
    try {
      const file = await (await call(link.href)).blob();
      const made = element("a", { href: URL.createObjectURL(file), download: link.download });
      made.click();
      setTimeout(() => URL.revokeObjectURL(made.href), 60_000);
    } catch (problem) {
      this.fail(problem instanceof TypeError ? new Problem("The download broke off: try it again.") : problem);
    }
  }
}

function waiting(job) {
  return job.state === "queued" ? "Waits for a worker to take it." : "No picture was counted.";
}

function factsOf(job) {
  const { request } = job;
  const manifest = request.source.manifest ? `, ${request.source.manifest}` : "";
  const facts = [
    ["Pictures", placeOf(request.source) + manifest],
    ["Results", `${placeOf(request.out)}/${job.id}`],
    ["Answer", request.task === "detect" ? "boxes" : "points"],
    ["Model", job.model ?? request.model ?? "the service's own"],
    ["Submitted", moment(job.created_at)],
  ];
  if (request.format !== "jsonl") facts.push(["Format", request.format]);
  if (job.started_at !== null) facts.push(["Started", moment(job.started_at)]);
  if (job.ended_at !== null && job.started_at !== null) {
    facts.push(["Ended", `${moment(job.ended_at)}, after ${lasting((new Date(job.ended_at) - new Date(job.started_at)) / 1000)}`]);
  }
  return facts;
}
