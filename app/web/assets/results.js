// What was found, in words: a legend of the phrases, and below each its objects.

import { colourOf } from "./colours.js";
import { element } from "./element.js";
import { scoreOf } from "./mark.js";

const CUT = {
  max_objects: "cut at the limit",
  length: "cut: the answer became too long",
  deadline: "cut: the time was up",
  repetition: "ended: the model repeated itself",
};
const $ = (id) => document.getElementById(id);

export class Results {
  /** As for the stage: `picked` on hover and focus, `chosen` on a click. */
  constructor(picked, chosen) {
    this.groups = [];
    this.rows = [];
    const indexOf = (event) => {
      const row = event.target.closest(".row");
      return row === null ? null : Number(row.dataset.index);
    };
    for (const name of ["pointerover", "focusin"]) {
      $("groups").addEventListener(name, (event) => picked(indexOf(event)));
    }
    for (const name of ["pointerleave", "focusout"]) $("groups").addEventListener(name, () => picked(null));
    $("groups").addEventListener("click", (event) => {
      if (indexOf(event) !== null) chosen(indexOf(event));
    });
  }

  /** Begins anew, with a group for each phrase. */
  start(phrases) {
    this.rows = [];
    this.groups = phrases.map((phrase, index) => {
      const swatch = element("span", { className: "swatch" });
      swatch.style.setProperty("--colour", colourOf(index));
      const count = element("span", { className: "hint", textContent: "…" });
      const list = element("ol");
      const group = element("section", { className: "group" });
      group.append(element("h3", {}, swatch, element("span", { textContent: phrase }), count), list);
      return { group, count, list };
    });
    $("groups").replaceChildren(...this.groups.map(({ group }) => group));
  }

  add(thing) {
    const row = element("button", { type: "button", className: "row" });
    row.dataset.index = this.rows.length;
    row.setAttribute("aria-pressed", "false");
    row.append(element("span", { textContent: placeOf(thing) }), element("span", { textContent: scoreOf(thing) }));
    this.rows.push(row);
    const { list, count } = this.groups[thing.phrase_index];
    list.append(element("li", {}, row));
    count.textContent = `${list.children.length}`;
  }

  /** Says how the search for each phrase ended. */
  finish(phrases) {
    phrases.forEach(({ finish_reason: reason }, index) => {
      const { list, count } = this.groups[index];
      const found = list.children.length ? `${list.children.length}` : "nothing found";
      count.textContent = reason in CUT ? `${found} (${CUT[reason]})` : found;
    });
  }

  /** No answer came, or only a part of it. */
  stop() {
    for (const { list, count } of this.groups) {
      count.textContent = list.children.length ? `${list.children.length} until it stopped` : "no answer";
    }
  }

  light(index) {
    this.rows.forEach((row, at) => row.classList.toggle("lit", at === index));
  }

  /** Marks one row as chosen, or none (null). */
  press(index) {
    this.rows.forEach((row, at) => row.setAttribute("aria-pressed", String(at === index)));
    if (index === null) return;
    const [list, row] = [$("groups"), this.rows[index]].map((it) => it.getBoundingClientRect());
    const hidden = row.top < list.top || row.bottom > list.bottom;
    if (hidden) $("groups").scrollTop += row.top - list.top - list.height / 2; // the page itself stays
  }
}

function placeOf(thing) {
  const [x, y] = thing.x === undefined ? [thing.x_min, thing.y_min] : [thing.x, thing.y];
  const from = `${(x * 100).toFixed(1)}, ${(y * 100).toFixed(1)}`;
  if (thing.x !== undefined) return `${from} %`;
  return `${from} – ${(thing.x_max * 100).toFixed(1)}, ${(thing.y_max * 100).toFixed(1)} %`;
}
