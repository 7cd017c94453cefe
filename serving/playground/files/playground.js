// The page calls the APIs of its own server: the index of v2, the metadata and `preview` of TensorFlow Serving's API,
// and /photos. Texts of the server and of files become text nodes only.

const POLL_MS = 5000;
const MAX_RESULTS = 50;
const SHOWN_SIDE = 640; // pixels of a drawing
const SHOWN_NUMBERS = 12; // of an embedding
const METHODS = {
  classify: "classify", multilabel: "tags", embed: "embed", detect: "detect", segment: "segment", regress: "regress",
};
const TOKEN_VARIABLE = "BAKERY_CLIENT_TOKEN";

const byId = (id) => document.getElementById(id);
const available = new Map(); // model name → available versions, newest first
let token = "";
let isWaitingForToken = false;
let shownIndex = "";
let lastFiles = [];
let running = new AbortController();
let queue = Promise.resolve();

class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Makes an element; strings among the children become text.
function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function say(text) {
  byId("status").textContent = text;
}

// Calls

async function call(path, options = {}) {
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "The server cannot be reached, or the file cannot be read.");
  }
  const text = await response.text();
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    // not from this server's APIs
  }
  if (response.ok && body !== null) return body;
  const message = body && body.error ? body.error : `The server answered with status ${response.status}.`;
  if (response.status === 401) askForToken(token ? message : "");
  throw new ServerError(response.status, message);
}

function modelPath(api, { model, version }) {
  return `${api}/${encodeURIComponent(model)}/versions/${version}`;
}

const signatures = new Map(); // of available versions, by path

async function hasPreview(target) {
  const path = modelPath("v1/models", target);
  if (!signatures.has(path)) {
    const metadata = await call(`${path}/metadata`);
    signatures.set(path, Object.keys(metadata.metadata.signature_def.signature_def));
  }
  return signatures.get(path).includes("preview");
}

async function preview(target, photo, signal) {
  if (!(await hasPreview(target))) return null;
  const body = JSON.stringify({ signature_name: "preview", inputs: { image: [{ b64: await toBase64(photo) }] } });
  const { outputs } = await call(`${modelPath("v1/models", target)}:predict`, { method: "POST", body, signal });
  return outputs.ok[0] ? outputs.png_bytes[0].b64 : null;
}

function toBase64(photo) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(photo);
  });
}

// Token and models

function askForToken(message) {
  isWaitingForToken = true;
  byId("token-form").hidden = false;
  byId("token-error").textContent = message;
  byId("token").setAttribute("aria-invalid", String(message !== ""));
  if (message) byId("token").focus();
  shownIndex = "";
  byId("no-models").textContent = "A token is needed to list them.";
  byId("no-models").hidden = false;
  byId("models-scroll").hidden = true;
}

async function useToken(event) {
  event.preventDefault();
  token = byId("token").value.trim();
  if (!(await refresh())) return;
  byId("token-form").hidden = true;
  byId("token").value = "";
  byId("model").focus();
  say("The token is valid.");
}

// Loads the models; returns whether that was possible.
async function refresh() {
  try {
    const index = await call("v2/repository/index", { method: "POST" });
    isWaitingForToken = false;
    const text = JSON.stringify(index);
    if (text !== shownIndex) showModels(index);
    shownIndex = text;
    return true;
  } catch (error) {
    if (error.status === 403 && token) askForToken(error.message);
    else if (error.status !== 401) {
      byId("no-models").textContent = error.message;
      byId("no-models").hidden = false;
    }
    return false;
  }
}

function showModels(index) {
  available.clear();
  signatures.clear();
  for (const row of index) {
    if (!available.has(row.name)) available.set(row.name, []);
    if (row.state === "READY") available.get(row.name).push(row.version);
  }
  for (const versions of available.values()) versions.sort((a, b) => (BigInt(a) < BigInt(b) ? 1 : -1));
  byId("models").replaceChildren(...index.map((row) => element("tr", {},
    element("th", { scope: "row" }, row.name),
    element("td", {}, row.version),
    element("td", { className: row.state.toLowerCase() }, row.reason ? `${row.state}: ${row.reason}` : row.state))));
  byId("models-scroll").hidden = index.length === 0;
  byId("no-models").hidden = index.length > 0;
  byId("no-models").textContent = "None. If the server needs a token, this one covers none of its models.";
  setOptions("model", [...available.keys()].filter((name) => available.get(name).length));
  showVersions();
}

function showVersions() {
  const versions = available.get(byId("model").value) || [];
  setOptions("version", versions);
  setOptions("other", ["", ...versions], (version) => version || "nothing");
}

function setOptions(id, values, title = (value) => value) {
  const select = byId(id);
  const chosen = select.value;
  select.replaceChildren(...values.map((value) => element("option", { value }, title(value))));
  if (values.includes(chosen)) select.value = chosen;
}

// Runs

function targets() {
  const model = byId("model").value;
  const versions = new Set([byId("version").value, byId("other").value]);
  return [...versions].filter(Boolean).map((version) => ({ model, version }));
}

function runAll(files) {
  if (!files.length) return;
  if (!targets().length) {
    say("There is no available model.");
    return;
  }
  lastFiles = [...files];
  byId("again").disabled = byId("clear").disabled = false;
  byId("no-results").hidden = true;
  const { signal } = running;
  const chosen = targets();
  for (const file of lastFiles) {
    queue = queue
      .then(() => (signal.aborted ? null : runPhoto(file, chosen, signal)))
      .catch((error) => say(`The result cannot be shown: ${error.message}`));
  }
}

async function runPhoto(file, chosen, signal) {
  const name = file.name || "photo";
  say(`Running ${name} …`);
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (signal.aborted) return;
  const columns = element("div", { className: "versions" });
  const article = element("article", {}, element("h3", {}, name));
  const picture = bitmap
    ? photoFigure(bitmap, name)
    : element("p", { className: "hint" }, "This browser cannot show the file.");
  article.append(picture, columns);
  article.setAttribute("aria-label", name);
  byId("results").prepend(article);
  while (byId("results").children.length > MAX_RESULTS) byId("results").lastChild.remove();
  const summaries = [];
  try {
    for (const target of chosen) summaries.push(await runVersion(file, bitmap, target, columns, signal));
  } finally {
    if (bitmap) bitmap.close();
  }
  if (!signal.aborted) say(`${name}: ${summaries.join("; ")}`);
}

// Shows the result of one version of a model; returns a summary.
async function runVersion(file, bitmap, target, columns, signal) {
  const section = element("section", {}, element("h4", {}, `${target.model} version ${target.version}`));
  columns.append(section);
  const headers = { "Content-Type": file.type || "application/octet-stream" };
  const started = performance.now();
  let answer;
  try {
    answer = await call(modelPath("photos", target), { method: "POST", body: file, headers, signal });
  } catch (error) {
    if (signal.aborted) return "";
    section.append(element("p", { className: "error" }, error.message), requestDetails(file, target, null));
    return error.message;
  }
  const took = `${(performance.now() - started).toFixed(0)} ms`;
  const [result] = answer.results;
  const [shown, summary] = await SHOW[answer.task](result, bitmap, file.name || "photo");
  section.append(...shown, element("p", { className: "hint" }, `Answered in ${took}.`));
  const png = await preview(target, file, signal).catch(() => null);
  if (png) section.append(previewFigure(png));
  section.append(requestDetails(file, target, answer.task));
  return `${summary}, in ${took}`;
}

// Results

const percent = (score) => (score === null ? "not a number" : `${(100 * score).toFixed(1)} %`);
const colour = (index) => `hsl(${(index * 137.5) % 360} 85% 55%)`;

function bars(rows) {
  return element("ol", { className: "bars" }, ...rows.map(({ name, score, swatch }) => {
    const fill = element("span", { className: "fill" });
    fill.style.width = `${100 * Math.min(1, Math.max(0, score || 0))}%`;
    const track = element("span", { className: "track" }, fill);
    track.setAttribute("aria-hidden", "true");
    const label = element("span", { className: "name" }, name);
    if (swatch) {
      const box = element("span", { className: "swatch" });
      box.style.background = fill.style.background = swatch;
      label.prepend(box);
    }
    return element("li", {}, label, element("span", {}, percent(score)), track);
  }));
}

function showScored(rows, none) {
  if (!rows.length) return [[element("p", {}, none)], none];
  const shown = bars(rows.map(({ label, score }) => ({ name: label, score })));
  return [[shown], `${rows[0].label} ${percent(rows[0].score)}`];
}

const SHOW = {
  classify: async (result) => showScored(result.top, "No class."),
  multilabel: async (result) => {
    const [shown] = showScored(result.tags, "No tag.");
    return [shown, result.tags.map((tag) => tag.label).join(", ") || "no tag"];
  },
  regress: async (result) => {
    const rows = Object.entries(result.values);
    const list = element("dl", {}, ...rows.flatMap(([name, value]) => [
      element("dt", {}, name), element("dd", {}, value === null ? "not a number" : String(Number(value.toPrecision(6)))),
    ]));
    return [[list], rows.map(([name, value]) => `${name} ${value === null ? "not a number" : value.toPrecision(4)}`).join(", ")];
  },
  embed: async (result) => {
    const vector = result.embedding;
    const first = vector.slice(0, SHOWN_NUMBERS).map((value) => (value === null ? "not a number" : value.toFixed(4))).join(", ");
    const summary = `${vector.length} numbers, length ${Math.hypot(...vector).toFixed(3)}`;
    return [[element("p", {}, summary), element("p", {}, vector.length > SHOWN_NUMBERS ? `${first}, …` : first)], summary];
  },
  detect: async (result, bitmap, name) => {
    const labels = [...new Set(result.boxes.map((box) => box.label))].sort();
    const rows = result.boxes.map((box) => ({ ...box, name: box.label, swatch: colour(labels.indexOf(box.label)) }));
    const summary = rows.length ? `${rows.length} found: ${rows.map((row) => row.label).join(", ")}` : "nothing found";
    const shown = rows.length ? [bars(rows)] : [element("p", {}, "Nothing found.")];
    return [bitmap ? [drawBoxes(bitmap, rows, `${name}, ${summary}`), ...shown] : shown, summary];
  },
  segment: async (result, bitmap, name) => {
    const rows = Object.entries(result.shares)
      .map(([label, score]) => ({ name: label, score, swatch: colour(result.labels.indexOf(label)) }))
      .filter((row) => row.score > 0)
      .sort((a, b) => b.score - a.score);
    const summary = rows.map((row) => `${row.name} ${percent(row.score)}`).join(", ");
    const canvas = await drawMap(bitmap, result, `${name}, coloured by class: ${summary}`);
    return [[canvas, bars(rows)], summary];
  },
};

// Drawings

function makeCanvas(width, height, label, side = SHOWN_SIDE) {
  const scale = Math.min(1, side / Math.max(width, height));
  const size = { width: Math.max(1, Math.round(scale * width)), height: Math.max(1, Math.round(scale * height)) };
  const canvas = element("canvas", size);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  return [canvas, canvas.getContext("2d"), size.width / width];
}

function photoFigure(bitmap, name) {
  const [canvas, context] = makeCanvas(bitmap.width, bitmap.height, name, SHOWN_SIDE / 2);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return element("figure", {}, canvas, element("figcaption", {}, `${bitmap.width} × ${bitmap.height} pixels`));
}

function previewFigure(png) {
  const image = element("img", { alt: "What the model saw", src: `data:image/png;base64,${png}` });
  return element("figure", {}, image, element("figcaption", {}, "What the model saw"));
}

function drawBoxes(bitmap, rows, label) {
  const [canvas, context, scale] = makeCanvas(bitmap.width, bitmap.height, label);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  context.font = "14px system-ui, sans-serif";
  context.textBaseline = "top";
  for (const { xmin, ymin, xmax, ymax, label: text, swatch } of [...rows].reverse()) {
    context.strokeStyle = context.fillStyle = swatch;
    context.lineWidth = 3;
    context.strokeRect(scale * xmin, scale * ymin, scale * (xmax - xmin), scale * (ymax - ymin));
    const width = context.measureText(text).width + 8;
    const [x, y] = [Math.min(scale * xmin, canvas.width - width), Math.max(0, scale * ymin - 18)];
    context.fillRect(x, y, width, 18);
    context.fillStyle = "#000";
    context.fillText(text, x + 4, y + 2);
  }
  return element("figure", {}, canvas);
}

// Draws the photo below the colours of the classes; `map_png` has the class id of each pixel as its grey level.
async function drawMap(bitmap, { map_png: png }, label) {
  const bytes = Uint8Array.from(atob(png), (character) => character.charCodeAt(0));
  const options = { colorSpaceConversion: "none", premultiplyAlpha: "none" };
  const map = await createImageBitmap(new Blob([bytes], { type: "image/png" }), options);
  const [canvas, context] = makeCanvas(map.width, map.height, label);
  const { width, height } = canvas;
  const layer = element("canvas", { width, height });
  const pixels = layer.getContext("2d");
  pixels.imageSmoothingEnabled = false;
  pixels.drawImage(map, 0, 0, width, height);
  map.close();
  const data = pixels.getImageData(0, 0, width, height);
  const palette = new Map();
  for (let offset = 0; offset < data.data.length; offset += 4) {
    const id = data.data[offset];
    if (!palette.has(id)) palette.set(id, toRgb(colour(id)));
    data.data.set(palette.get(id), offset);
  }
  pixels.putImageData(data, 0, 0);
  if (bitmap) context.drawImage(bitmap, 0, 0, width, height);
  context.globalAlpha = bitmap ? 0.6 : 1;
  context.drawImage(layer, 0, 0);
  return element("figure", {}, canvas);
}

function toRgb(css) {
  const context = element("canvas", { width: 1, height: 1 }).getContext("2d");
  context.fillStyle = css;
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data;
}

// The request as commands

const shellWord = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

function curlCommand(file, target) {
  const url = new URL(modelPath("photos", target), document.baseURI).href;
  const header = token ? `-H "Authorization: Bearer $${TOKEN_VARIABLE}" ` : "";
  return `curl ${header}--data-binary ${shellWord(`@${file.name}`)} ${shellWord(url)}`;
}

function pythonCode(file, { model, version }, task) {
  const argument = token ? `, token=os.environ["${TOKEN_VARIABLE}"]` : "";
  return [
    ...(token ? ["import os", ""] : []),
    "from savedmodel_bakery import Client",
    "",
    `with Client(${JSON.stringify(location.origin)}, model=${JSON.stringify(model)}, version=${version}${argument}) as client:`,
    `    print(client.${METHODS[task]}(${JSON.stringify(file.name)}))`,
  ].join("\n");
}

function requestDetails(file, target, task) {
  const details = element("details", {}, element("summary", {}, "Send this request yourself"));
  details.append(...copyable("curl", curlCommand(file, target)));
  if (task) details.append(...copyable("Python", pythonCode(file, target, task)));
  return details;
}

function copyable(language, text) {
  const code = element("pre", { tabIndex: 0 }, text);
  code.setAttribute("role", "group");
  code.setAttribute("aria-label", language);
  const button = element("button", { type: "button" }, `Copy ${language}`);
  button.addEventListener("click", () => copy(code, language));
  return [code, element("p", {}, button)];
}

async function copy(code, language) {
  try {
    await navigator.clipboard.writeText(code.textContent); // only over HTTPS and on this machine
    say(`Copied the request as ${language}.`);
  } catch {
    getSelection().selectAllChildren(code);
    say("The browser does not let this page copy: the text is selected, so copy it with the keyboard.");
  }
}

// Events

byId("token-form").addEventListener("submit", useToken);
byId("model").addEventListener("change", () => {
  byId("version").replaceChildren(); // so that the newest one is chosen
  byId("other").replaceChildren();
  showVersions();
});
byId("files").addEventListener("change", (event) => {
  runAll(event.target.files);
  event.target.value = ""; // the same file may be chosen again
});
byId("try-form").addEventListener("submit", (event) => {
  event.preventDefault();
  runAll(lastFiles);
});
byId("clear").addEventListener("click", () => {
  running.abort();
  running = new AbortController();
  byId("results").replaceChildren();
  byId("no-results").hidden = false;
  byId("clear").disabled = true;
  say("");
  byId("files").focus();
});
addEventListener("dragover", (event) => {
  if (!event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  byId("drop").classList.add("over");
});
for (const name of ["dragleave", "drop"]) addEventListener(name, () => byId("drop").classList.remove("over"));
addEventListener("drop", (event) => {
  if (!event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  runAll(event.dataTransfer.files);
});
addEventListener("paste", (event) => runAll(event.clipboardData.files));
setInterval(() => {
  if (!document.hidden && !isWaitingForToken) refresh();
}, POLL_MS);
refresh();
