// The form: what is asked, and what was wrong with it.

import { sayAt } from "./problems.js";

const $ = (id) => document.getElementById(id);
const INPUTS = { image: "file", object: "phrases", objects: "phrases", model: "model", adapter: "model" };

/** The question in the form. */
export function readQuestion() {
  const phrases = $("phrases").value.split("\n").map((line) => line.trim()).filter((line) => line);
  const options = {};
  const chosen = $("model").selectedOptions[0];
  if (chosen.value) options.model = chosen.dataset.model;
  if (chosen.dataset.adapter) options.adapter = chosen.dataset.adapter;
  for (const name of ["max_objects", "min_score"]) {
    if ($(name).value) options[name] = Number($(name).value);
  }
  return { task: document.querySelector("[name=task]:checked").value, phrases, options };
}

/** Offers the models of `/v1/models`, with their adapters. */
export function offerModels(models) {
  const select = $("model");
  const before = select.value;
  const options = models.flatMap(({ name, adapters }) => [
    option(name, name, ""),
    ...adapters.map((adapter) => option(`${name} + ${adapter}`, name, adapter)),
  ]);
  select.replaceChildren(select.options[0], ...options);
  select.value = before;
  if (select.selectedIndex < 0) select.selectedIndex = 0;
}

/** Says what is wrong, beside the field of a request that it is about and above all others. */
export const showProblem = (words, field) => sayAt(INPUTS[field] ?? field, words);

function option(text, model, adapter) {
  const made = new Option(text, text);
  made.dataset.model = model;
  made.dataset.adapter = adapter;
  return made;
}
