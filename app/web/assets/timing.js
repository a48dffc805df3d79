// Where the time of an answer went, as a bar and in words.

const PARTS = [
  ["queue_ms", "queue", "#8a8f98"],
  ["intake_ms", "picture", "#56b4e9"],
  ["prefill_ms", "prefill", "#0072b2"],
  ["decode_ms", "decode", "#e69f00"],
];
const $ = (id) => document.getElementById(id);
const inMs = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;

/** Shows the `metrics` of an answer, or nothing (null). */
export function showTiming(metrics) {
  $("timing").hidden = metrics === null;
  if (metrics === null) return;
  const bars = PARTS.map(([name, , colour]) => {
    const bar = document.createElement("div");
    bar.style.flex = `${metrics[name]} 0 0`;
    bar.style.setProperty("--colour", colour);
    return bar;
  });
  const parts = PARTS.map(([name, word, colour]) => {
    const swatch = document.createElement("i");
    swatch.style.setProperty("--colour", colour);
    return item(swatch, `${word} ${inMs(metrics[name])}`);
  });
  $("timing-bar").replaceChildren(...bars);
  $("timing-parts").replaceChildren(
    ...parts,
    item(`in all ${inMs(metrics.total_ms)}`),
    item(`first token after ${inMs(metrics.ttft_ms)}`),
    item(`${metrics.input_tokens} tokens in (${metrics.cached_tokens} from the cache), ${metrics.output_tokens} out`),
  );
}

function item(...children) {
  const made = document.createElement("li");
  made.append(...children);
  return made;
}
