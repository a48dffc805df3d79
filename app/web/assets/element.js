// Makes elements.

/** An element with properties (`data` and `style` by name, `aria-…` as attributes) and children. */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "data") Object.assign(made.dataset, value);
    else if (key === "style") for (const [rule, text] of Object.entries(value)) made.style.setProperty(rule, text);
    else if (key.startsWith("aria-")) made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}
