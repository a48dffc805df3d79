// The page of jobs: brings the list, the form and one job together, and keeps them up to date.

import { Problem, call } from "./api.js";
import { offerModels, offerStores, showRefusal, submit } from "./jobform.js";
import { JobList } from "./joblist.js";
import { JobView } from "./jobview.js";
import { askAgain, askForKey, watchKey } from "./key.js";
import { Polling } from "./polling.js";
import { clearProblem } from "./problems.js";

const $ = (id) => document.getElementById(id);
const chosen = () => (/^#[0-9a-f]{32}$/.test(location.hash) ? location.hash.slice(1) : null);

let ready = false; // whether the stores are known
let before = ""; // what was seen at the last look

const list = new JobList();
const view = new JobView((job) => {
  list.take([job]);
  show();
  polling.now();
});
const polling = new Polling(look, failed);

/** What the address names: a job, the form, or on a small screen the list alone. */
function show() {
  const job = list.jobs.get(chosen());
  const off = !$("off").hidden;
  document.querySelector("main").dataset.view = chosen() !== null ? "job" : off || location.hash === "#new" ? "new" : "list";
  $("job").hidden = job === undefined;
  $("ask").hidden = !ready || chosen() !== null;
  list.show(chosen());
  if (job !== undefined) view.show(job);
}

/** Asks how the jobs are; whether anything changed. Throws a Problem. */
async function look() {
  if (!ready) await prepare();
  if (!ready) return false;
  await list.refresh();
  const id = chosen();
  if (id !== null && !list.newest.has(id)) list.take([await (await call(`v1/jobs/${id}`)).json()]);
  $("list-problem").textContent = "";
  const jobs = [...list.jobs.values()];
  if (jobs.some(({ state }) => state === "queued")) await models();
  show();
  const now = JSON.stringify(jobs.map(({ id: name, state, reason, progress }) => [name, state, reason, progress.images, progress.done]));
  const changed = now !== before;
  before = now;
  return changed;
}

/** Asks which stores there are, and says what to do where there are none. Throws a Problem. */
async function prepare() {
  $("off").hidden = true;
  $("side").hidden = false;
  try {
    const { stores } = await (await call("v1/stores")).json();
    if (stores.length) {
      offerStores(stores);
      ready = true;
      await models();
    } else {
      off("This service has stores, but none for you. Its operator adds your tenant to the “tenants” of one, or leaves them out for everyone.", false);
    }
  } catch (problem) {
    if (problem.status !== 404) throw problem;
    off(problem.detail, true);
  }
}

function off(why, how) {
  $("off").hidden = false;
  $("off-why").textContent = why;
  $("off-how").hidden = !how;
  $("side").hidden = true;
  show();
}

/** Offers the models, and says so where nobody would run a job. */
async function models() {
  const { models: known } = await (await call("v1/models")).json();
  offerModels(known);
  const runners = known.reduce((sum, model) => sum + model.job_runners, 0);
  const none = known.length ? "No worker of this service runs jobs: they stay queued until one is started with the same POINTBOX_STORES and without POINTBOX_JOBS=off."
    : "No worker of this service is alive: jobs stay queued until one is started.";
  const words = runners ? "" : none;
  if ($("runners").textContent !== words) $("runners").textContent = words;
}

/** Says what a look met; whether to look again. */
function failed(problem) {
  if (!(problem instanceof Problem)) throw problem;
  const closed = problem.status === 401 || problem.status === 403;
  if (problem.status === 401) askAgain();
  if (problem.status === 403) askForKey("Another key may open this page.");
  $("list-problem").textContent = problem.status === 401 ? "" : problem.message;
  return !closed;
}

async function start() {
  try {
    const job = await submit();
    if (job === null) return;
    list.take([job]);
    location.hash = job.id;
    polling.now();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (problem.status === 401) askAgain();
    showRefusal(problem);
  }
}

watchKey(() => {
  clearProblem();
  ready = false;
  list.clear();
  $("list-problem").textContent = "";
  polling.now();
});
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  start();
});
$("phrases").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  start();
});
$("older").addEventListener("click", async () => {
  try {
    await list.more();
    show();
  } catch (problem) {
    failed(problem);
  }
});
addEventListener("hashchange", () => {
  show();
  scrollTo(0, 0);
  if (chosen() !== null) $("job-title").focus({ preventScroll: true });
  else if (location.hash === "#new") $("source-store").focus({ preventScroll: true });
  polling.now();
});
show();
polling.now();
