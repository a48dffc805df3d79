// The picture, what was found on it, and how large it is shown.

import { markOf } from "./mark.js";

const LARGEST = 16;
const STEP = 1.5;
const SAME_SHAPE = 0.02; // rounding of the sides of a small picture stays below it
const $ = (id) => document.getElementById(id);

export class Stage {
  /** `picked` is called with the index of a mark under the pointer (null: none), `chosen` when it is clicked. */
  constructor(picked, chosen) {
    this.marks = [];
    this.file = null;
    this.shape = null; // width / height, once known
    this.zoom = 1;
    const indexOf = (event) => event.target.closest(".mark")?.dataset.index ?? null;
    const number = (index) => (index === null ? null : Number(index));
    $("marks").addEventListener("pointerover", (event) => picked(number(indexOf(event))));
    $("marks").addEventListener("pointerleave", () => picked(null));
    $("marks").addEventListener("click", (event) => {
      if (indexOf(event) !== null) chosen(number(indexOf(event)));
    });
    this.watchZoom();
    this.watchDragging();
  }

  /** Shows a file. Where the browser cannot, says so; its answer is drawn on an empty sheet then. */
  async show(file) {
    this.clear();
    this.file = file;
    const image = $("picture");
    URL.revokeObjectURL(image.src);
    image.src = URL.createObjectURL(file);
    image.alt = file.name;
    $("note").textContent = "";
    try {
      await image.decode();
      this.setShape(image.naturalWidth / image.naturalHeight);
    } catch {
      if (this.file !== file) return; // another one took its place meanwhile
      this.blank("Your browser cannot show this file. The service may be able to read it: ask and see.");
      $("empty").hidden = false;
      $("empty").textContent = file.name;
    }
  }

  /** Says how the service saw the picture, which is the frame of its answer. */
  frame({ width, height }) {
    const shape = width / height;
    if (this.shape === null) {
      this.setShape(shape);
      $("note").textContent = "Your browser cannot show this picture: what was found is drawn on an empty sheet.";
    } else if (Math.abs(this.shape / shape - 1) > SAME_SHAPE) {
      this.blank("The service turns this picture otherwise than your browser: it is not shown here.");
      this.setShape(shape);
    }
  }

  /** Draws a box or a point of an answer; `tag` is shown while it is lit. */
  add(thing, tag) {
    const mark = markOf(thing, tag);
    mark.dataset.index = this.marks.length;
    this.marks.push(mark);
    $("marks").append(mark);
  }

  clear() {
    this.marks = [];
    $("marks").replaceChildren();
  }

  /** Lights one mark, or none (null). */
  light(index) {
    this.marks.forEach((mark, at) => mark.classList.toggle("lit", at === index));
  }

  blank(words) {
    this.shape = null;
    $("sheet").hidden = true;
    URL.revokeObjectURL($("picture").src);
    $("picture").removeAttribute("src");
    $("note").textContent = words;
  }

  setShape(shape) {
    this.shape = shape;
    $("sheet").style.setProperty("--shape", shape);
    $("sheet").hidden = false;
    $("empty").hidden = true;
    this.setZoom(1);
  }

  /** `at` is the place in the stage, in its pixels, that stays where it is; its middle by default. */
  setZoom(zoom, at = null) {
    const stage = $("stage");
    const [x, y] = at ?? [stage.clientWidth / 2, stage.clientHeight / 2];
    const before = this.zoom;
    this.zoom = Math.min(Math.max(zoom, 1), LARGEST);
    const grown = this.zoom / before;
    const [left, top] = [stage.scrollLeft, stage.scrollTop];
    $("sheet").style.setProperty("--zoom", this.zoom);
    $("sheet").classList.toggle("zoomed", this.zoom > 1);
    stage.scrollTo((left + x) * grown - x, (top + y) * grown - y);
  }

  watchZoom() {
    const stage = $("stage");
    const zooms = { "+": STEP, "=": STEP, "-": 1 / STEP, 0: 0 };
    $("zoom-in").addEventListener("click", () => this.setZoom(this.zoom * STEP));
    $("zoom-out").addEventListener("click", () => this.setZoom(this.zoom / STEP));
    $("zoom-fit").addEventListener("click", () => this.setZoom(1));
    stage.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || !(event.key in zooms)) return;
      event.preventDefault();
      this.setZoom(this.zoom * zooms[event.key]);
    });
    stage.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return; // plain wheels scroll; pinching a touch pad comes with ctrlKey
      event.preventDefault();
      const box = stage.getBoundingClientRect();
      const at = [event.clientX - box.left, event.clientY - box.top];
      this.setZoom(this.zoom * Math.exp(-event.deltaY / 200), at);
    }, { passive: false });
  }

  watchDragging() {
    const stage = $("stage");
    $("picture").draggable = false;
    $("sheet").addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button !== 0) return; // fingers scroll by themselves
      const move = (moved) => stage.scrollBy(-moved.movementX, -moved.movementY);
      document.addEventListener("pointermove", move);
      document.addEventListener("pointerup", () => document.removeEventListener("pointermove", move), {
        once: true,
      });
    });
  }
}
