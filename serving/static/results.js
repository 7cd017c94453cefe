// Turns the results of /photos into elements. Makes no requests. Texts become text nodes only.

const SHOWN_SIDE = 640; // pixels of a drawing
const SHOWN_NUMBERS = 12; // of an embedding or a tensor

// Makes an element; strings among the children become text.
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

export const hint = (text) => element("p", { className: "hint" }, text);

// Shows the result of a photo by its task. Returns elements, a summary, and for some tasks a function that draws.
export const showResult = (task, result) => SHOW[task](result);

const SHOW = {
  classify: ({ top }) => showScored(top, "No class."),
  multilabel: ({ tags }) => ({
    ...showScored(tags, "No tag."),
    summary: tags.map((tag) => tag.label).join(", ") || "no tag",
  }),
  regress: ({ values }) => {
    const rows = Object.entries(values);
    const list = element("dl", {}, ...rows.flatMap(([name, value]) => [
      element("dt", {}, name), element("dd", {}, written(value, () => String(Number(value.toPrecision(6))))),
    ]));
    return {
      shown: [list],
      summary: rows.map(([name, value]) => `${name} ${written(value, () => value.toPrecision(4))}`).join(", "),
    };
  },
  embed: ({ embedding }) => {
    const first = embedding.slice(0, SHOWN_NUMBERS).map((value) => written(value, () => value.toFixed(4)));
    if (embedding.length > first.length) first.push("…");
    let squares = 0;
    for (const value of embedding) squares += value === null ? NaN : value * value;
    const length = written(Math.sqrt(squares), (value) => value.toFixed(3));
    const summary = `${embedding.length} numbers, length ${length}`;
    return { shown: [element("p", {}, summary), element("p", {}, first.join(", "))], summary };
  },
  tensors: ({ tensors }) => {
    const rows = Object.entries(tensors).map(([name, tensor]) => [name, shapeOf(tensor), [tensor].flat(Infinity)]);
    const list = element("dl", {}, ...rows.flatMap(([name, shape, values]) => [
      element("dt", {}, `${name} [${shape.join(", ")}]`),
      element("dd", {}, values.slice(0, SHOWN_NUMBERS).map((value) => written(value, String)).join(", ")),
    ]));
    return { shown: [list], summary: rows.map(([name, shape]) => `${name} [${shape.join(", ")}]`).join(", ") };
  },
  image: ({ png }) => {
    const picture = element("img", { src: `data:image/png;base64,${png}`, alt: "the network's picture" });
    const figure = element("figure", {}, picture, element("figcaption", {}, "The network's picture"));
    return { shown: [figure], summary: "a picture" };
  },
  detect: ({ boxes }) => {
    const labels = [...new Set(boxes.map((box) => box.label))].sort();
    const rows = boxes.map((box) => ({ ...box, detail: position(box), swatch: colour(labels.indexOf(box.label)) }));
    return {
      shown: [rows.length ? bars(rows) : element("p", {}, "Nothing found.")],
      summary: rows.length ? `${rows.length} found: ${rows.map((row) => row.label).join(", ")}` : "nothing found",
      draw: (bitmap, name) => (bitmap ? drawBoxes(bitmap, rows, name) : ""),
    };
  },
  keypoints: ({ points, edges }) => {
    const list = element("dl", {}, ...points.flatMap(({ name, y, x, score }) => [
      element("dt", {}, name), element("dd", {}, place({ y, x }) + (score === null ? "" : `, score ${score.toFixed(3)}`)),
    ]));
    return {
      shown: [list],
      summary: `${points.length} points`,
      draw: (bitmap, name) => (bitmap ? drawPoints(bitmap, points, edges, name) : ""),
    };
  },
  heads: ({ heads }) => {
    const each = Object.entries(heads).map(([name, head]) => [name, showResult(head.task, head)]);
    return {
      shown: each.flatMap(([name, { shown }]) => [element("h4", {}, name), ...shown]),
      summary: each.map(([name, { summary }]) => `${name}: ${summary}`).join("; "),
      draw: each.map(([, { draw }]) => draw).find(Boolean),
    };
  },
  segment: (result) => {
    const rows = Object.entries(result.shares)
      .map(([label, score]) => ({ label, score, swatch: colour(result.labels.indexOf(label)) }))
      .filter((row) => row.score !== 0)
      .sort((a, b) => b.score - a.score);
    return {
      shown: [bars(rows)],
      summary: rows.map((row) => `${row.label} ${percent(row.score)}`).join(", "),
      draw: (bitmap, name) => drawMap(bitmap, result, `${name}, coloured by class`),
    };
  },
};

// A number that is not finite is null.
const written = (value, write) => (value === null || Number.isNaN(value) ? "not a number" : write(value));
const percent = (score) => written(score, () => `${(100 * score).toFixed(1)} %`);
const shapeOf = (tensor) => (Array.isArray(tensor) ? [tensor.length, ...(tensor.length ? shapeOf(tensor[0]) : [])] : []);
const colour = (index) => `hsl(${(index * 137.5) % 360} 85% 55%)`;

function position({ xmin, xmax, ymin, ymax }) {
  const [left, right, top, bottom] = [xmin, xmax, ymin, ymax].map((edge) => written(edge, () => edge.toFixed(0)));
  return `x ${left}–${right}, y ${top}–${bottom}`;
}

function place({ y, x }) {
  const [down, right] = [y, x].map((value) => written(value, () => value.toFixed(0)));
  return `x ${right}, y ${down}`;
}

function bars(rows) {
  return element("ol", { className: "bars" }, ...rows.map(({ label, score, detail, swatch }) => {
    const fill = element("span", { className: "fill" });
    fill.style.width = `${100 * Math.min(1, Math.max(0, score || 0))}%`;
    const track = element("span", { className: "track" }, fill);
    track.setAttribute("aria-hidden", "true");
    const name = element("span", { className: "name" }, label);
    if (swatch) {
      const box = element("span", { className: "swatch" });
      box.style.background = fill.style.background = swatch;
      name.prepend(box);
    }
    const row = element("li", {}, name, element("span", {}, percent(score)), track);
    if (detail) row.append(element("span", { className: "hint" }, detail));
    return row;
  }));
}

function showScored(rows, none) {
  if (!rows.length) return { shown: [element("p", {}, none)], summary: none };
  return { shown: [bars(rows)], summary: `${rows[0].label} ${percent(rows[0].score)}` };
}

// Drawings

// Returns a drawing, or the reason why there is none.
export async function drawn(draw) {
  try {
    return await draw();
  } catch (error) {
    return hint(`The drawing cannot be shown: ${error.message}`);
  }
}

// Makes a canvas for a picture. Returns it, its context, and its pixels per pixel of the picture.
function makeCanvas(picture, name, side = SHOWN_SIDE) {
  const scale = Math.min(1, side / Math.max(picture.width, picture.height));
  const [width, height] = [picture.width, picture.height].map((length) => Math.max(1, Math.round(scale * length)));
  const canvas = element("canvas", { width, height });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", name);
  return [canvas, canvas.getContext("2d"), width / picture.width];
}

export function drawPhoto(bitmap, name) {
  const [canvas, context] = makeCanvas(bitmap, name, SHOWN_SIDE / 2);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return element("figure", {}, canvas, element("figcaption", {}, `${bitmap.width} × ${bitmap.height} pixels`));
}

export function previewFigure(png) {
  const image = element("img", { alt: "What the model saw", src: `data:image/png;base64,${png}` });
  return element("figure", {}, image, element("figcaption", {}, "What the model saw"));
}

function drawBoxes(bitmap, rows, name) {
  const [canvas, context, scale] = makeCanvas(bitmap, name);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  context.font = "14px system-ui, sans-serif";
  context.textBaseline = "top";
  for (const row of [...rows].reverse()) {
    const { xmin, ymin, xmax, ymax, label, swatch, mask_size: size } = row;
    // Unless this browser and the model rotate the photo differently.
    if (size && size[0] === bitmap.height && size[1] === bitmap.width) drawMask(context, row);
    context.strokeStyle = context.fillStyle = swatch;
    context.lineWidth = 3;
    context.strokeRect(scale * xmin, scale * ymin, scale * (xmax - xmin), scale * (ymax - ymin));
    const width = context.measureText(label).width + 8;
    const [x, y] = [Math.min(scale * xmin, canvas.width - width), Math.max(0, scale * ymin - 18)];
    context.fillRect(x, y, width, 18);
    context.fillStyle = "#000";
    context.fillText(label, x + 4, y + 2);
  }
  return element("figure", {}, canvas);
}

// Tints the pixels of a mask.
function drawMask(context, { mask_counts: counts, mask_size: [height, width], swatch }) {
  const mask = decodeMask(counts, height * width);
  const { width: columns, height: rows } = context.canvas;
  const layer = element("canvas", { width: columns, height: rows });
  const pixels = layer.getContext("2d").createImageData(columns, rows);
  const rgb = toRgb(swatch);
  for (let y = 0; y < rows; y += 1) {
    for (let x = 0; x < columns; x += 1) {
      const [row, column] = [Math.floor(((y + 0.5) * height) / rows), Math.floor(((x + 0.5) * width) / columns)];
      if (mask[column * height + row]) pixels.data.set(rgb, 4 * (y * columns + x));
    }
  }
  layer.getContext("2d").putImageData(pixels, 0, 0);
  context.globalAlpha = 0.5;
  context.drawImage(layer, 0, 0);
  context.globalAlpha = 1;
}

// Returns the pixels of a mask, column by column, from COCO's compressed run lengths; see answers/run_lengths.py.
function decodeMask(counts, size) {
  const pixels = new Uint8Array(size);
  const lengths = [];
  let [number, factor, end] = [0, 1, 0];
  for (const character of counts) {
    const digit = character.charCodeAt(0) - 48;
    number += (digit & 31) * factor; // not shifted: lengths may have more than 31 bits
    factor *= 32;
    if (digit & 32) continue;
    if (digit & 16) number -= factor;
    if (lengths.length > 2) number += lengths.at(-2);
    if (lengths.length % 2) pixels.fill(1, end, end + number);
    end += number;
    lengths.push(number);
    [number, factor] = [0, 1];
  }
  return pixels;
}

// Draws the points, and a line for each of the edges, pairs of their numbers.
function drawPoints(bitmap, points, edges, name) {
  const [canvas, context, scale] = makeCanvas(bitmap, name);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  context.lineWidth = 3;
  for (const [first, second] of edges) {
    context.strokeStyle = colour(second);
    context.beginPath();
    context.moveTo(scale * points[first].x, scale * points[first].y);
    context.lineTo(scale * points[second].x, scale * points[second].y);
    context.stroke();
  }
  points.forEach(({ y, x }, number) => {
    context.fillStyle = colour(number);
    context.beginPath();
    context.arc(scale * x, scale * y, 5, 0, 2 * Math.PI);
    context.fill();
  });
  return element("figure", {}, canvas);
}

// Draws the photo below the colours of the classes; `map_png` has the class id of each pixel as its grey level.
async function drawMap(bitmap, { labels, map_png: png }, name) {
  const bytes = Uint8Array.from(atob(png), (character) => character.charCodeAt(0));
  const options = { colorSpaceConversion: "none", premultiplyAlpha: "none" };
  const map = await createImageBitmap(new Blob([bytes], { type: "image/png" }), options);
  const [canvas, context] = makeCanvas(map, name);
  const { width, height } = canvas;
  const layer = element("canvas", { width, height });
  const pixels = layer.getContext("2d");
  pixels.imageSmoothingEnabled = false;
  pixels.drawImage(map, 0, 0, width, height);
  const data = pixels.getImageData(0, 0, width, height);
  const palette = new Map();
  for (let offset = 0; offset < data.data.length; offset += 4) {
    const id = data.data[offset];
    if (!palette.has(id)) palette.set(id, toRgb(colour(labels.indexOf(labels[id]))));
    data.data.set(palette.get(id), offset);
  }
  pixels.putImageData(data, 0, 0);
  const isRotatedAlike = bitmap?.width === map.width && bitmap?.height === map.height;
  if (isRotatedAlike) context.drawImage(bitmap, 0, 0, width, height);
  context.globalAlpha = isRotatedAlike ? 0.6 : 1;
  context.drawImage(layer, 0, 0);
  const figure = element("figure", {}, canvas);
  if (bitmap && !isRotatedAlike) {
    figure.append(element("figcaption", {}, "This browser and the model rotate the photo differently."));
  }
  return figure;
}

function toRgb(css) {
  const context = element("canvas", { width: 1, height: 1 }).getContext("2d");
  context.fillStyle = css;
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data;
}
