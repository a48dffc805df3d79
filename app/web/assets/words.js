// Figures of jobs in words.

/** 1 error, 2 errors, 3,000 errors. */
export function countOf(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** A time that is left or was taken, to two units. */
export function lasting(seconds) {
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const hours = Math.floor(whole / 3600);
  return `${hours.toLocaleString("en")} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** A moment as the service writes it, in the reader's own time. */
export const moment = (text) => new Date(text).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });

/** Store and folder. */
export const placeOf = ({ store, prefix }) => [store, prefix.replace(/^\/+|\/+$/g, "")].filter(Boolean).join("/");

/** What a job looks for. */
export function titleOf({ request }) {
  return request.objects.join(", ") || `the phrases of ${request.source.manifest}`;
}

/** How far a job is: its images, errors, objects, rate and the time that is left. */
export function countsOf({ state, request, progress }) {
  const { images, done, errors, objects, images_per_s: rate, seconds_left: left } = progress;
  if (images === null) return state === "running" ? "Lists the pictures" : "";
  const parts = [done === images ? countOf(images, "image") : `${done.toLocaleString("en")} of ${countOf(images, "image")}`];
  if (errors) parts.push(countOf(errors, "error"));
  if (objects) parts.push(request.task === "detect" ? countOf(objects, "box", "boxes") : countOf(objects, "point"));
  if (rate !== null) parts.push(`${rate < 10 ? rate.toFixed(1) : Math.round(rate)} images/s`);
  if (left !== null && done < images) parts.push(`${lasting(left)} left`);
  return parts.join(" · ");
}

/** Whether it may still change by itself. */
export const isOpen = ({ state }) => state === "queued" || state === "running";
