// The page calls the APIs of its own server: the index of v2, the metadata and `preview` of TensorFlow Serving's API,
// and /photos. Texts of the server and of files become text nodes only.

import { drawPhoto, drawn, element, hint, previewFigure, showResult } from "./results.js";

const POLL_MS = 15000; // each request may count against a limit of the token
const MAX_RETRY_AFTER_S = 10;
const MAX_RESULTS = 50;
const METHODS = { multilabel: "tags", image: "transform", heads: "answer" }; // of the client; the others are named as the task
const TOKEN = /^[\w.~+/-]+=*$/; // RFC 6750, 2.1, as in client/credentials.py
const SECOND_IMAGE = "image_2";
const TOKEN_VARIABLE = "BAKERY_CLIENT_TOKEN";

const byId = (id) => document.getElementById(id);
const available = new Map(); // model name → available versions, newest first
let token = "";
let isWaitingForToken = false;
let shownIndex = "";
let lastFiles = [];
let running = new AbortController();
let queue = Promise.resolve();
let queued = 0; // photos

class ServerError extends Error {
  constructor(message, status = 0, retryAfterS = NaN) {
    super(message);
    this.status = status;
    this.retryAfterS = retryAfterS;
  }
}

function say(text) {
  byId("status").textContent = text;
}

// Calls

// Returns the JSON of the response and the time it took.
async function call(path, options = {}) {
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const started = performance.now();
  let response, text;
  try {
    // A proxy may need its cookies, and Firefox sends a client certificate only with credentials.
    response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin" });
    text = await response.text();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    const reason = options.body instanceof Blob ? ", or the file cannot be read" : "";
    throw new ServerError(`The server cannot be reached${reason}.`);
  }
  const took = `${(performance.now() - started).toFixed(0)} ms`;
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    // not from this server's APIs
  }
  if (response.ok && body !== null) return { body, took };
  const message = body?.error || `The server answered with status ${response.status}.`;
  throw new ServerError(message, response.status, Number(response.headers.get("Retry-After") || NaN));
}

// Calls again, once, if the server is busy and says when to try again.
async function callPatiently(path, options) {
  try {
    return await call(path, options);
  } catch (error) {
    if (!(error.retryAfterS <= MAX_RETRY_AFTER_S)) throw error;
    say(`Waiting ${error.retryAfterS} s: ${error.message}`);
    await pause(error.retryAfterS, options.signal);
    return call(path, options);
  }
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    setTimeout(resolve, 1000 * seconds);
    signal.addEventListener("abort", () => reject(signal.reason));
  });
}

function modelPath(api, { model, version }) {
  return `${api}/${encodeURIComponent(model)}/versions/${version}`;
}

// Of available versions, by path.
const signatures = new Map();
let inputsShown = Promise.resolve(); // photos wait for it, so that a token with a low limit is asked once at a time
const tasks = new Map();

async function signaturesOf(target, signal) {
  const path = modelPath("v1/models", target);
  if (!signatures.has(path)) {
    const { body } = await callPatiently(`${path}/metadata`, { signal });
    signatures.set(path, body.metadata.signature_def.signature_def);
  }
  return signatures.get(path);
}

// Returns the inputs of a model beside the photo, by name, as the metadata state them.
async function otherInputs(target, signal) {
  const { serving_default: usual, top_k: other } = await signaturesOf(target, signal);
  const { image, ...others } = (usual || other)?.inputs || {};
  return image ? others : {};
}

// Returns what the model saw, the reason why that cannot be shown, or nothing if the model has no `preview`.
async function preview(target, photo, signal) {
  try {
    if (!("preview" in (await signaturesOf(target, signal)))) return "";
    const inputs = { image: [{ b64: await toBase64(photo) }] };
    const options = { method: "POST", body: JSON.stringify({ signature_name: "preview", inputs }), signal };
    const { body } = await callPatiently(`${modelPath("v1/models", target)}:predict`, options);
    if (!body.outputs.ok[0]) throw new Error(body.outputs.error[0]);
    return previewFigure(body.outputs.png_bytes[0].b64);
  } catch (error) {
    return hint(`What the model saw cannot be shown: ${error.message}`);
  }
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
  byId("no-models").textContent = "Enter a token to see the models.";
  byId("no-models").hidden = false;
  byId("models-scroll").hidden = true;
}

async function useToken(event) {
  event.preventDefault();
  const entered = byId("token").value.trim();
  if (!TOKEN.test(entered)) {
    askForToken("Invalid token: it may contain letters, digits and -._~+/, and = at the end.");
    return;
  }
  token = entered;
  try {
    await loadModels();
  } catch (error) {
    askForToken(error.message);
    return;
  }
  byId("token-form").hidden = true;
  byId("token").value = "";
  byId("model").focus();
  say("The token is valid.");
}

async function loadModels() {
  const { body: index } = await call("v2/repository/index", { method: "POST" });
  isWaitingForToken = false;
  const text = JSON.stringify(index);
  if (text !== shownIndex) showModels(index);
  shownIndex = text;
}

async function refresh() {
  try {
    await loadModels();
  } catch (error) {
    if (error.status === 401 || (error.status === 403 && token)) {
      askForToken(token && error.message);
      return;
    }
    shownIndex = ""; // so that the next answer replaces the error
    byId("no-models").textContent = error.message;
    byId("no-models").hidden = false;
  }
}

function showModels(index) {
  available.clear();
  signatures.clear();
  tasks.clear();
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
  byId("no-models").textContent = token ? "This token covers no models." : "The server has no models.";
  setOptions("model", [...available.keys()].filter((name) => available.get(name).length));
  showVersions();
}

function showVersions() {
  const versions = available.get(byId("model").value) || [];
  setOptions("version", versions);
  setOptions("other", ["", ...versions], (version) => version || "nothing");
  inputsShown = showInputs();
}

// Shows a field for each other input of the chosen version; fields that stay keep what was entered.
async function showInputs() {
  const [target] = targets();
  const inputs = target ? await otherInputs(target, new AbortController().signal).catch(() => ({})) : {};
  if (target?.model !== targets()[0]?.model || target?.version !== targets()[0]?.version) return; // chosen meanwhile
  const fields = Object.entries(inputs).sort().map(([name, input]) => inputField(name, input));
  byId("input-fields").replaceChildren(...fields);
  byId("inputs").hidden = fields.length === 0;
}

function inputField(name, { dtype, tensor_shape: { dim = [] } }) {
  const id = `input-${name}`;
  const isFile = name === SECOND_IMAGE;
  const type = `${dtype.slice(3).toLowerCase()}[${dim.slice(1).map(({ size }) => size).join(",")}]`;
  const kind = isFile ? "photo" : type === "string[]" ? "text" : `JSON, ${type}`;
  const properties = isFile ? { type: "file", accept: "image/*" } : { autocomplete: "off", spellcheck: false };
  const field = byId(id) || element("input", { id, name, ...properties });
  return element("p", {}, element("label", { htmlFor: id }, `${name} (${kind})`), field);
}

// Returns what was entered for other inputs: for each its name, and a text or a file; nothing for no file.
function entered() {
  const fields = [...byId("input-fields").querySelectorAll("input")];
  const values = fields.map((field) => [field.name, field.type === "file" ? field.files[0] : field.value]);
  return values.filter(([, value]) => value !== undefined);
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
  lastFiles = [...files];
  byId("again").disabled = false;
  const chosen = targets();
  if (isWaitingForToken) {
    say("Enter a token first.");
    byId("token").focus();
    return;
  }
  if (!chosen.length) {
    say("There is no available model.");
    return;
  }
  byId("clear").disabled = false;
  byId("no-results").hidden = true;
  const { signal } = running;
  const values = entered();
  queued += lastFiles.length;
  for (const file of lastFiles) {
    queue = queue
      .then(() => inputsShown)
      .then(() => (signal.aborted ? null : runPhoto(file, values, chosen, signal)))
      .catch((error) => say(`The result cannot be shown: ${error.message}`))
      .finally(() => { queued -= 1; });
  }
}

async function runPhoto(file, values, chosen, signal) {
  const name = file.name || "photo";
  say(`Running ${name} …`);
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (signal.aborted) return;
  const columns = element("div", { className: "versions" });
  const article = element("article", {}, element("h3", {}, name));
  const picture = bitmap ? await drawn(() => drawPhoto(bitmap, name)) : hint("This browser cannot show the file.");
  article.append(picture, columns);
  article.setAttribute("aria-label", name);
  byId("results").prepend(article);
  while (byId("results").children.length > MAX_RESULTS) byId("results").lastChild.remove();
  const summaries = [];
  try {
    for (const target of chosen) summaries.push(await runVersion({ file, values, target }, bitmap, columns, signal));
  } finally {
    if (bitmap) bitmap.close();
  }
  if (!signal.aborted) say(`${name}: ${summaries.join("; ")}`);
}

// Shows the result of one version of a model; returns a summary.
async function runVersion(request, bitmap, columns, signal) {
  const { file, values, target } = request;
  const section = element("section", {}, element("h4", {}, `${target.model} version ${target.version}`));
  columns.append(section);
  const path = modelPath("photos", target);
  let answer;
  try {
    answer = await callPatiently(path, { method: "POST", ...photoBody(file, values), signal });
  } catch (error) {
    if (signal.aborted) return "";
    if (error.status === 401) askForToken(token && error.message);
    section.append(element("p", { className: "error" }, error.message), requestDetails(request));
    return error.message;
  }
  const { body: { task, results: [result] }, took } = answer;
  tasks.set(path, task);
  const { shown, summary, draw } = showResult(task, result);
  if (draw) section.append(await drawn(() => draw(bitmap, `${file.name}, ${summary}`)));
  section.append(...shown, hint(`Answered in ${took}.`));
  section.append(await preview(target, file, signal), requestDetails(request));
  return `${summary}, in ${took}`;
}

// Returns the body of a request: the file as it is, or a form with the other inputs.
function photoBody(file, values) {
  if (!values.length) return { body: file, headers: { "Content-Type": "application/octet-stream" } };
  const body = new FormData();
  body.append("file", file);
  for (const [name, value] of values) body.append(name, value);
  return { body };
}

// The request as commands

const shellWord = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

function curlCommand(url, name, values) {
  const header = token ? `-H "Authorization: Bearer $${TOKEN_VARIABLE}" ` : "";
  const file = name === "-" ? "./-" : name; // - is stdin
  const fields = values.map(([field, value]) => (value instanceof File
    ? formFile(field, value.name) : `--form-string ${shellWord(`${field}=${value}`)}`));
  const body = values.length
    ? [formFile("file", file), ...fields].join(" ") : `--data-binary ${shellWord(`@${file}`)}`;
  return `curl ${header}${body} ${shellWord(url)}`;
}

// In quotes, because curl reads ; and , in the name of a file.
function formFile(field, path) {
  return `-F ${shellWord(`${field}=@"${path.replaceAll(/["\\]/g, "\\$&")}"`)}`;
}

const quoted = JSON.stringify; // for Python too

function clientCode({ model, version }, name, task) {
  const argument = token ? `, token=os.environ["${TOKEN_VARIABLE}"]` : "";
  return [
    ...(token ? ["import os", ""] : []),
    "from savedmodel_bakery import Client",
    "",
    `with Client(${quoted(location.origin)}, model=${quoted(model)}, version=${version}${argument}) as client:`,
    `    print(client.${METHODS[task] || task}(${quoted(name)}))`,
  ].join("\n");
}

function requestsCode(url, { file: { name }, values }) {
  const headers = token ? `, headers={"Authorization": "Bearer " + os.environ["${TOKEN_VARIABLE}"]}` : "";
  return [
    ...(token ? ["import os"] : []),
    "from pathlib import Path",
    "",
    "import requests",
    "",
    `photo = Path(${quoted(name)}).read_bytes()`,
    ...(values.length ? formCode(values) : []),
    `response = requests.post(${quoted(url)}, ${values.length ? "data=data, files=files" : "data=photo"}${headers})`,
    "print(response.text)",
  ].join("\n");
}

function formCode(values) {
  const files = ['"file": photo'];
  const data = [];
  for (const [field, value] of values) {
    if (value instanceof File) files.push(`${quoted(field)}: Path(${quoted(value.name)}).read_bytes()`);
    else data.push(`${quoted(field)}: ${quoted(value)}`);
  }
  return [`data = {${data.join(", ")}}`, `files = {${files.join(", ")}}`];
}

function requestDetails(request) {
  const { file, values, target } = request;
  const path = modelPath("photos", target);
  const url = new URL(path, document.baseURI);
  const task = tasks.get(path);
  const isAtRoot = url.pathname === `/${path}`; // else a proxy adds a prefix, which the client cannot send
  const useClient = task && isAtRoot && !values.length;
  const python = useClient ? clientCode(target, file.name, task) : requestsCode(url.href, request);
  const details = element("details", {}, element("summary", {}, "Send this request yourself"));
  if (token) details.append(hint(`The token is read from the environment variable ${TOKEN_VARIABLE}.`));
  details.append(...copyable("curl", curlCommand(url.href, file.name, values)), ...copyable("Python", python));
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
    say("This page may not use the clipboard. The text is selected: press Ctrl+C or ⌘C.");
  }
}

// Events

byId("token-form").addEventListener("submit", useToken);
byId("model").addEventListener("change", () => {
  byId("version").replaceChildren(); // so that the newest one is chosen
  byId("other").replaceChildren();
  showVersions();
});
byId("version").addEventListener("change", () => { inputsShown = showInputs(); });
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
  if (!document.hidden && !isWaitingForToken && !queued) refresh();
}, POLL_MS);
refresh();
