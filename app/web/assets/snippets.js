// The question that was asked, as a command and as a program. The key is named, never written.

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`; // for a POSIX shell
const escaped = (text) => text.replace(/["\\]/g, "\\$&"); // inside the double quotes of curl's -F

/** `asked`: base, task, file, example (the URL of its picture, or null), phrases, options, key (whether one is used). */
export function curl({ base, task, file, example, phrases, options, key }) {
  const parts = [`curl -s ${quoted(`${base}v1/${task}`)}`];
  if (key) parts.push('-H "Authorization: Bearer $POINTBOX_API_KEY"');
  parts.push(`-F ${quoted(`image=@"${escaped(file)}"`)}`);
  const fields = [...phrases.map((phrase) => ["object", phrase]), ...Object.entries(options)];
  for (const [name, value] of fields) parts.push(`--form-string ${quoted(`${name}=${value}`)}`);
  const ask = parts.join(" \\\n  ");
  return example === null ? ask : `curl -s -o ${quoted(file)} ${quoted(example)}\n${ask}`;
}

/** With the client in sdk/, which reads the key from POINTBOX_API_KEY. */
export function python({ base, task, file, example, phrases, options }) {
  const literal = JSON.stringify; // of texts and numbers it is Python as well
  const given = Object.entries(options).map(([name, value]) => {
    return `, ${name}=${typeof value === "number" ? value : literal(value)}`;
  });
  return [
    ...(example === null ? [] : ["from urllib.request import urlretrieve", ""]),
    "from pointbox import Client",
    "",
    ...(example === null ? [] : [`urlretrieve(${literal(example)}, ${literal(file)})`]),
    `with Client(${literal(base.replace(/\/$/, ""))}) as client:`,
    `    result = client.${task}(${literal(file)}, [${phrases.map((phrase) => literal(phrase)).join(", ")}]${given.join("")})`,
    "    for found in result:",
    "        print(found.label, found.score, found.pixels)",
  ].join("\n");
}
