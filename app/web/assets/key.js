// The key of a service that wants one: asked for when it is needed, kept in this tab only.

const NAME = "pointbox-key";
const $ = (id) => document.getElementById(id);

/** The key that this tab has, or null. */
export const currentKey = () => sessionStorage.getItem(NAME);

/** Shows the entry of the key and says why it is needed. */
export function askForKey(why) {
  $("key").hidden = false;
  $("key-why").textContent = why;
  $("key-forget").hidden = currentKey() === null;
}

/** Asks for it once the service refused. */
export function askAgain() {
  askForKey(currentKey() === null ? "This service wants a key." : "The service does not accept this key.");
  $("key-text").focus();
}

/** Calls `changed` after the key was entered or forgotten. */
export function watchKey(changed) {
  const use = () => {
    const key = $("key-text").value.trim();
    if (!key) return $("key-text").focus();
    sessionStorage.setItem(NAME, key);
    $("key-text").value = "";
    $("key-why").textContent = "The key is used for every question from now on.";
    $("key-forget").hidden = false;
    return changed();
  };
  $("key-use").addEventListener("click", use);
  $("key-text").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault(); // or the form around it would ask
    use();
  });
  $("key-forget").addEventListener("click", () => {
    sessionStorage.removeItem(NAME);
    changed();
  });
  if (currentKey() !== null) askForKey("This tab has a key.");
}
