// What is wrong with a form, beside the input that it is about.

const $ = (id) => document.getElementById(id);

/** Says it at the input with this id, or above all of them where there is none. */
export function sayAt(id, words) {
  $("problem").textContent = words;
  const input = id === undefined ? null : $(id);
  const place = input === null ? null : placeOf(input);
  if (place === null) return;
  place.textContent = words;
  place.hidden = false;
  $("problem").textContent = "";
  input.setAttribute("aria-invalid", "true");
  const folded = input.closest("details");
  if (folded !== null) folded.open = true;
  input.focus();
}

/** Forgets what was wrong. */
export function clearProblem() {
  $("problem").textContent = "";
  for (const place of document.querySelectorAll("form .wrong")) place.hidden = true;
  for (const input of document.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
}

const placeOf = (input) => $(input.getAttribute("aria-describedby")?.split(" ")[0]);

document.addEventListener("input", ({ target }) => {
  if (!target.hasAttribute("aria-invalid")) return;
  target.removeAttribute("aria-invalid"); // it is being mended
  placeOf(target).hidden = true;
});
