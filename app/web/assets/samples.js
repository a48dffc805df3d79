// Sample pictures of a job with what was found drawn over them, small beside each other and one large.

import { Problem, call } from "./api.js";
import { colourOf } from "./colours.js";
import { element } from "./element.js";
import { markOf, tagOf } from "./mark.js";
import { Results } from "./results.js";
import { Stage } from "./stage.js";
import { countOf, isOpen } from "./words.js";

const SHOWN = 12;
const $ = (id) => document.getElementById(id);
const thingsOf = (sample) => sample.objects ?? sample.points;

export class Samples {
  constructor() {
    this.job = null;
    this.samples = [];
    this.items = new Map(); // by the number of a sample, for as long as its job is shown
    this.pictures = new Map(); // Blobs; null: it could not be had
    this.large = new Large((step) => this.step(step));
  }

  /** Forgets all and shows those of another job from now on. */
  start(job) {
    this.job = job.id;
    this.samples = [];
    this.items.clear();
    this.pictures.clear();
    this.seen = "";
    $("samples").replaceChildren();
    $("samples-note").textContent = "";
    $("legend").replaceChildren(...job.request.objects.map((phrase, index) => {
      const swatch = element("span", { className: "swatch", style: { "--colour": colourOf(index) } });
      return element("li", {}, swatch, phrase);
    }));
  }

  /** Asks for samples where there may be more, or, at the end of the job, better spread ones. Throws a Problem. */
  async refresh(job) {
    const results = job.progress.done - job.progress.errors;
    const now = `${results} ${isOpen(job)}`;
    if (now === this.seen || !results || (isOpen(job) && this.samples.length === SHOWN)) return;
    const { samples } = await (await call(`v1/jobs/${job.id}/samples?limit=${SHOWN}`)).json();
    if (job.id !== this.job) return;
    this.seen = now;
    this.samples = samples;
    for (const sample of samples) {
      if (!this.items.has(sample.number)) this.items.set(sample.number, this.item(sample));
    }
    const items = samples.map(({ number }) => this.items.get(number));
    const shown = [...$("samples").children];
    if (items.length !== shown.length || items.some((item, at) => item !== shown[at])) $("samples").replaceChildren(...items);
    $("samples-note").textContent = samples.length ? "" : "They come once the first part of the job is written.";
    this.load();
  }

  item(sample) {
    const things = thingsOf(sample);
    const found = things.length ? things.map(tagOf).join(", ") : "nothing found";
    const image = element("img", { alt: "" });
    const shape = sample.image.width / sample.image.height;
    const frame = element("span", { className: "frame", style: { "--shape": shape } }, image);
    frame.append(...things.map((thing) => markOf(thing, tagOf(thing))));
    const key = element("span", { className: "key", textContent: sample.key });
    const count = element("span", { className: "hint", textContent: countIn(sample) });
    const button = element("button", { type: "button", className: "sample", "aria-label": `${sample.key}: ${found}` },
      element("span", { className: "mat" }, frame), key, count);
    button.addEventListener("click", () => this.open(sample));
    return element("li", {}, button);
  }

  /** One after the other: a key may allow few requests at a time. */
  async load() {
    const { job, samples } = this;
    for (const { number } of samples) {
      if (this.job !== job || this.samples !== samples) return;
      if (this.pictures.has(number)) continue;
      const place = this.items.get(number).querySelector(".mat");
      const picture = await this.picture(job, number, place);
      if (this.items.get(number)?.contains(place) !== true) return; // another job is shown meanwhile
      this.pictures.set(number, picture);
      if (picture === null) continue;
      const image = place.querySelector("img");
      image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
      image.src = URL.createObjectURL(picture);
    }
  }

  /** A picture, or null and words in its place. */
  async picture(job, number, place) {
    for (;;) {
      try {
        return await (await call(`v1/jobs/${job}/samples/${number}`)).blob();
      } catch (problem) {
        if (problem.status === 429) {
          await new Promise((ready) => setTimeout(ready, 1000 * (problem.retryAfter ?? 1)));
          continue;
        }
        const words = problem instanceof Problem ? problem.detail : "The connection broke.";
        place.replaceChildren(element("span", { className: "hint", textContent: words }));
        return null;
      }
    }
  }

  open(sample) {
    this.at = this.samples.indexOf(sample);
    this.large.show(sample, this.pictures.get(sample.number));
  }

  /** To the picture beside the one that is shown large; around at the ends. */
  step(by) {
    const { length } = this.samples;
    this.open(this.samples[(this.at + by + length) % length]);
  }
}

class Large {
  /** `step` is called with 1 for the next picture, -1 for the one before. */
  constructor(step) {
    this.chosen = null;
    this.stage = new Stage((index) => this.light(index), (index) => this.choose(index));
    this.results = new Results((index) => this.light(index), (index) => this.choose(index));
    $("large-close").addEventListener("click", () => $("large").close());
    $("large-before").addEventListener("click", () => step(-1));
    $("large-after").addEventListener("click", () => step(1));
    $("large").addEventListener("keydown", ({ key, target }) => {
      if (target === $("stage")) return; // there the arrows scroll
      if (key === "ArrowLeft") step(-1);
      if (key === "ArrowRight") step(1);
    });
    $("large").addEventListener("click", ({ target }) => {
      if (target === $("large")) $("large").close(); // beside it
    });
  }

  /** `picture` may be missing: it is not there yet, or cannot be had. */
  async show(sample, picture) {
    $("large-title").textContent = sample.key;
    if (!$("large").open) $("large").showModal();
    this.chosen = null;
    this.sample = sample;
    this.results.start(sample.phrases.map(({ object }) => object));
    if (!picture) {
      this.stage.clear();
      this.stage.blank("This picture cannot be shown.");
      this.stage.setShape(sample.image.width / sample.image.height);
    } else {
      await this.stage.show(new File([picture], sample.key, { type: picture.type }));
      if (this.sample !== sample) return; // another one was wanted meanwhile
    }
    for (const thing of thingsOf(sample)) {
      this.stage.add(thing, tagOf(thing));
      this.results.add(thing);
    }
    this.results.finish(sample.phrases);
  }

  light(index) {
    this.stage.light(index ?? this.chosen);
    this.results.light(index ?? this.chosen);
  }

  choose(index) {
    this.chosen = this.chosen === index ? null : index;
    this.results.press(this.chosen);
    this.light(index);
  }
}

function countIn(sample) {
  const { length } = thingsOf(sample);
  if (!length) return "nothing found";
  return sample.objects === null ? countOf(length, "point") : countOf(length, "box", "boxes");
}
