// The playground: brings the picture, the question, the stage and the answer together.

import { Problem, call, events, worded } from "./api.js";
import { offerModels, readQuestion, showProblem } from "./asking.js";
import { askAgain, currentKey, watchKey } from "./key.js";
import { tagOf } from "./mark.js";
import { watchPictures } from "./picture.js";
import { clearProblem } from "./problems.js";
import { Results } from "./results.js";
import { curl, python } from "./snippets.js";
import { Stage } from "./stage.js";
import { showTiming } from "./timing.js";

const $ = (id) => document.getElementById(id);
const BASE = new URL("./", document.baseURI).href;
const EXAMPLE = new URL("assets/example.jpg", BASE).href;
const EXAMPLE_PHRASES = "red circle\ngreen triangle\nblue square\nyellow star";

let picture = null; // a File
let running = null; // the AbortController of the question under way
let last = null; // the last question and its answer: {asked, answer}
let chosen = null; // the index of what stays lit

const stage = new Stage(light, choose);
const results = new Results(light, choose);

function light(index) {
  stage.light(index ?? chosen);
  results.light(index ?? chosen);
}

function choose(index) {
  chosen = chosen === index ? null : index;
  results.press(chosen);
  light(index);
}

function forgetAnswer(phrases = []) {
  running?.abort();
  last = null;
  chosen = null;
  stage.clear();
  results.start(phrases);
  showTiming(null);
  $("take").hidden = true;
  $("copied").textContent = "";
  $("snippet").hidden = true;
  $("status").textContent = "";
  clearProblem();
}

async function take(file) {
  forgetAnswer();
  picture = file;
  if ($("file").files[0] !== file) $("file").value = "";
  await stage.show(file);
}

function fail(problem) {
  if (problem.name === "AbortError") return;
  $("status").textContent = "";
  if (!(problem instanceof Problem)) throw problem;
  if (problem.status === 401) askAgain();
  showProblem(problem.message, problem.field);
}

async function ask() {
  const { task, phrases, options } = readQuestion();
  forgetAnswer(phrases);
  if (picture === null) return showProblem("Bring a picture first: choose, drop or paste one.", "image");
  if (!phrases.length) return showProblem("Write what to look for, such as: red circle", "object");
  const asked = {
    base: BASE, task, phrases, options, file: picture.name, key: currentKey() !== null,
    example: picture.example ? EXAMPLE : null,
  };
  const body = new FormData();
  body.append("image", picture);
  for (const phrase of phrases) body.append("object", phrase);
  for (const [name, value] of Object.entries({ ...options, stream: true })) body.append(name, value);
  const mine = new AbortController();
  running = mine;
  $("stop").hidden = false;
  $("status").textContent = "Looking…";
  if (matchMedia("(max-width: 46rem)").matches) $("view").scrollIntoView(); // there it is below the form
  try {
    finish(asked, await listen(await call(`v1/${task}`, { method: "POST", body, signal: mine.signal })));
  } catch (problem) {
    fail(problem);
  } finally {
    if (running === mine) {
      running = null;
      if (last === null) results.stop();
      $("stop").hidden = true;
    }
  }
  return undefined;
}

/** Draws objects while they come; the whole answer. */
async function listen(response) {
  for await (const [name, data] of events(response)) {
    if (name === "object") add(data);
    else if (name === "done") return data;
    else if (name === "error") throw worded(data);
  }
  throw new Problem("The connection ended before the answer was complete.");
}

function add(thing) {
  stage.add(thing, tagOf(thing));
  results.add(thing);
}

function finish(asked, answer) {
  const things = answer.objects ?? answer.points;
  if (things.length !== stage.marks.length) {
    stage.clear();
    results.start(asked.phrases);
    things.forEach(add);
  }
  stage.frame(answer.image);
  results.finish(answer.phrases);
  showTiming(answer.metrics);
  last = { asked, answer };
  $("take").hidden = false;
  const [one, many] = asked.task === "detect" ? ["box", "boxes"] : ["point", "points"];
  const cut = answer.truncated ? " The list was cut." : "";
  $("status").textContent = `Found ${things.length} ${things.length === 1 ? one : many}.${cut}`;
}

async function copy(kind) {
  const texts = { json: () => JSON.stringify(last.answer, null, 2), curl: () => curl(last.asked), python: () => python(last.asked) };
  const text = texts[kind]();
  $("snippet").textContent = text;
  $("snippet").hidden = false;
  try {
    await navigator.clipboard.writeText(text);
    $("copied").textContent = "Copied.";
  } catch { // not allowed, or the page came over plain http from another machine
    getSelection().selectAllChildren($("snippet"));
    $("copied").textContent = "Your browser does not let this page copy: the text below is selected, copy it yourself.";
  }
}

async function example() {
  try {
    const response = await call(EXAMPLE);
    const file = new File([await response.blob()], "example.jpg", { type: "image/jpeg" });
    await take(Object.assign(file, { example: true }));
    $("phrases").value = EXAMPLE_PHRASES;
    await ask();
  } catch (problem) {
    fail(problem);
  }
}

async function loadModels() {
  try {
    offerModels((await (await call("v1/models")).json()).models);
  } catch (problem) {
    if (problem.status === 401) askAgain(); // nothing was asked yet that went wrong
    else fail(problem);
  }
}

watchPictures($("file"), take, (words) => showProblem(words, "image"));
watchKey(() => {
  clearProblem();
  loadModels();
});
$("example").addEventListener("click", example);
$("stop").addEventListener("click", () => {
  running?.abort();
  $("status").textContent = "Stopped.";
});
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
$("phrases").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  ask();
});
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => copy(button.dataset.copy));
}
loadModels();
