// Three ways to bring a picture: the file chooser, dropping and pasting.

/** Calls `take` with each File that is brought, and `refuse` with words when there was none in it. */
export function watchPictures(chooser, take, refuse) {
  chooser.addEventListener("change", () => {
    if (chooser.files.length) take(chooser.files[0]);
  });
  document.addEventListener("paste", (event) => {
    const [file] = event.clipboardData.files;
    if (!file) return; // text, for a field
    event.preventDefault();
    take(file);
  });
  const mark = (on) => document.body.classList.toggle("dropping", on);
  document.addEventListener("dragover", (event) => {
    event.preventDefault(); // or the browser would open the file
    mark(true);
  });
  document.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) mark(false);
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    mark(false);
    const [file] = event.dataTransfer.files;
    if (file) take(file);
    else refuse("What was dropped is no file. Save the picture first, then drop the file.");
  });
}
