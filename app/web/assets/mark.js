// A box or a point on a picture.

import { colourOf } from "./colours.js";

const percent = (fraction) => `${fraction * 100}%`;

/** For a parent that is as large as the picture; `tag` is shown while the mark is lit. */
export function markOf(thing, tag) {
  const mark = document.createElement("div");
  const point = thing.x !== undefined;
  const [left, top] = point ? [thing.x, thing.y] : [thing.x_min, thing.y_min];
  const [right, bottom] = point ? [left, top] : [thing.x_max, thing.y_max];
  mark.className = "mark";
  mark.classList.toggle("point", point);
  mark.classList.toggle("low", bottom > 0.85);
  mark.classList.toggle("right", left > 0.6);
  mark.style.left = percent(left);
  mark.style.top = percent(top);
  if (!point) {
    mark.style.width = percent(right - left);
    mark.style.height = percent(bottom - top);
  }
  mark.style.zIndex = Math.round(1000 * (1 - (right - left) * (bottom - top))); // small ones on top
  mark.style.setProperty("--colour", colourOf(thing.phrase_index));
  mark.append(Object.assign(document.createElement("span"), { textContent: tag }));
  return mark;
}

/** The score as it is shown everywhere. */
export const scoreOf = (thing) => `score ${thing.score.toFixed(2)}`;

/** What a mark is called. */
export const tagOf = (thing) => `${thing.label} · ${scoreOf(thing)}`;
