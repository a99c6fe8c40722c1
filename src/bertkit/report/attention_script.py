"""What draws the attention page: its script, which only ever sets text, and its style.

In: nothing.  Out: JavaScript and CSS.  Next: attention.py
"""

ATTENTION_STYLE = """
.controls { display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; align-items: center; margin: .3rem 0 .8rem;
  font-size: .92rem; }
.controls select { font: inherit; padding: .1rem .3rem; }
.view { display: grid; grid-template-columns: minmax(5rem, 12rem) minmax(8rem, 22rem) minmax(5rem, 12rem);
  justify-content: center; }
.side { list-style: none; margin: 0; padding: 0; font-size: .9rem; }
.side.dense { font-size: .74rem; }
.side li { display: flex; gap: .5em; align-items: center; padding: 0 .4em; cursor: pointer; white-space: nowrap;
  overflow: hidden; border-radius: .2em; }
.side.from li { flex-direction: row-reverse; }
.side bdi { overflow: hidden; text-overflow: ellipsis; }
.side .b bdi { color: #9a3412; }
.side .special bdi { color: var(--soft); }
.side small { color: var(--soft); font-variant-numeric: tabular-nums; font-size: .85em; }
.side li.chosen { outline: 2px solid var(--accent); outline-offset: -2px; }
#lines { width: 100%; display: block; }
.grid { display: grid; gap: 3px; justify-content: start; align-items: center; font-size: .75rem; color: var(--soft); }
.grid span { text-align: center; }
.grid button { padding: 0; border: 1px solid var(--line); background: none; cursor: pointer; line-height: 0;
  border-radius: 2px; }
.grid button[aria-pressed=true] { border-color: var(--accent); outline: 2px solid var(--accent); }
.grid canvas { width: 64px; height: 64px; image-rendering: pixelated; }
@media (max-width: 40rem) {
  .view { grid-template-columns: 5rem 1fr 5rem; }
  .grid canvas { width: 40px; height: 40px; }
}
"""

ATTENTION_SCRIPT = """
const data = JSON.parse(document.getElementById("attention").textContent);
const tokens = data.tokens, count = tokens.length, area = count * count;
const bytes = Uint8Array.from(atob(data.weights), character => character.charCodeAt(0));
const firstHead = [];  // of each layer, counted over all layers
data.heads.reduce((before, heads) => { firstHead.push(before); return before + heads.length; }, 0);
const element = id => document.getElementById(id);
const make = (name, text, parent) => {
  const made = document.createElement(name);
  made.textContent = text;
  parent.append(made);
  return made;
};
const state = {layer: 0, place: 0, chosen: null, pointed: null};  // place: of the head in its layer, -1: their mean
const dense = count > 48, rowHeight = dense ? 15 : 22, smallest = 0.01, faintest = 0.08;

function matrix(layer, place) {  // weights, count x count, 0 to 255
  const heads = data.heads[layer].length, start = firstHead[layer] * area;
  if (place >= 0) return bytes.subarray(start + place * area, start + (place + 1) * area);
  const mean = new Float32Array(area);
  for (let head = 0; head < heads; head++)
    for (let cell = 0; cell < area; cell++) mean[cell] += bytes[start + head * area + cell] / heads;
  return mean;
}
const isSpecial = token => /^\\[(CLS|SEP)\\]$/.test(token);
function isShown(from, to) {
  if (!element("specials").checked && (isSpecial(tokens[from]) || isSpecial(tokens[to]))) return false;
  const part = element("part") ? element("part").value : "all";
  return part === "all" || part === data.segments[from] + "-" + data.segments[to];
}
function fillSide(side) {
  const list = element(side);
  list.classList.toggle("dense", dense);
  tokens.forEach((token, index) => {
    const item = make("li", "", list);
    item.style.height = rowHeight + "px";
    item.tabIndex = 0;
    if (data.segments[index]) item.classList.add("b");
    if (isSpecial(token)) item.classList.add("special");
    make("bdi", token, item);
    make("small", "", item);
    const here = {side, index};
    const isChosen = () => state.chosen && state.chosen.side === side && state.chosen.index === index;
    const choose = () => { state.chosen = isChosen() ? null : here; draw(); };
    item.addEventListener("click", choose);
    item.addEventListener("keydown", event => { if (event.key === "Enter") choose(); });
    item.addEventListener("mouseenter", () => { state.pointed = here; draw(); });
    item.addEventListener("mouseleave", () => { state.pointed = null; draw(); });
  });
}
function mark(focus, weights) {  // the tokens that the one in focus attends to, or that attend to it
  for (const side of ["from", "to"]) {
    [...element(side).children].forEach((item, index) => {
      let weight = 0;
      if (focus && focus.side !== side) {
        const from = side === "to" ? focus.index : index, to = side === "to" ? index : focus.index;
        if (isShown(from, to)) weight = weights[from * count + to] / 255;
      }
      item.style.backgroundColor = weight >= smallest ? `rgba(15, 118, 110, ${0.75 * weight})` : "";
      item.lastChild.textContent = weight >= smallest ? (100 * weight).toFixed(0) + " %" : "";
      item.classList.toggle("chosen", Boolean(focus) && focus.side === side && focus.index === index);
    });
  }
}
function draw() {
  const weights = matrix(state.layer, state.place), focus = state.pointed || state.chosen;
  mark(focus, weights);
  const canvas = element("lines"), width = canvas.clientWidth, height = count * rowHeight;
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = height + "px";
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.strokeStyle = "#0f766e";
  const isDrawn = (from, to) =>
    isShown(from, to) && (!focus || focus.index === (focus.side === "from" ? from : to));
  let strongest = 0;
  for (let from = 0; from < count; from++)
    for (let to = 0; to < count; to++)
      if (isDrawn(from, to)) strongest = Math.max(strongest, weights[from * count + to]);
  element("strongest").textContent = (100 * strongest / 255).toFixed(0) + " %";
  for (let from = 0; from < count; from++) {
    for (let to = 0; to < count; to++) {
      const weight = weights[from * count + to] / Math.max(1, strongest);  // of the strongest
      if (weight < faintest || !isDrawn(from, to)) continue;
      const left = (from + 0.5) * rowHeight, right = (to + 0.5) * rowHeight;
      pen.globalAlpha = focus ? weight : Math.pow(weight, 1.2);  // many faint lines would be a fog
      pen.lineWidth = 0.5 + 2 * weight;
      pen.beginPath();
      pen.moveTo(0, left);
      pen.bezierCurveTo(width / 2, left, width / 2, right, width, right);
      pen.stroke();
    }
  }
  for (const button of document.querySelectorAll("#grid button"))
    button.setAttribute("aria-pressed", String(button.dataset.head === state.layer + "-" + state.place));
}
function fillHeads() {
  const select = element("head");
  select.replaceChildren();
  data.heads[state.layer].forEach((head, place) => { make("option", head, select).value = place; });
  make("option", "mean of all", select).value = -1;
  if (state.place >= data.heads[state.layer].length) state.place = 0;
  select.value = state.place;
}
function show(layer, place) {
  state.layer = layer;
  state.place = place;
  element("layer").value = layer;
  fillHeads();
  draw();
}
function thumbnail(canvas, weights) {  // the strongest of step x step weights is one pixel
  const step = Math.ceil(count / 64), size = Math.ceil(count / step);
  canvas.width = canvas.height = size;
  const pen = canvas.getContext("2d"), image = pen.createImageData(size, size);
  for (let from = 0; from < count; from++) {
    for (let to = 0; to < count; to++) {
      const pixel = 4 * (Math.floor(from / step) * size + Math.floor(to / step));
      image.data[pixel] = 15; image.data[pixel + 1] = 118; image.data[pixel + 2] = 110;
      const strength = 255 * Math.sqrt(weights[from * count + to] / 255);  // so that small weights are seen
      if (strength > image.data[pixel + 3]) image.data[pixel + 3] = strength;
    }
  }
  pen.putImageData(image, 0, 0);
}
function fillGrid() {
  const grid = element("grid"), columns = Math.max(...data.heads.flat()) + 1;
  grid.style.gridTemplateColumns = `2.2rem repeat(${columns}, max-content)`;
  make("span", "", grid);
  for (let head = 0; head < columns; head++) make("span", head, grid);
  data.heads.forEach((heads, layer) => {
    make("span", layer, grid);
    for (let head = 0; head < columns; head++) {
      const place = heads.indexOf(head);
      if (place < 0) { make("span", "–", grid).title = "pruned"; continue; }
      const button = make("button", "", grid);
      button.type = "button";
      button.dataset.head = layer + "-" + place;
      button.setAttribute("aria-label", `layer ${layer}, head ${head}`);
      button.title = `layer ${layer}, head ${head}`;
      thumbnail(button.appendChild(document.createElement("canvas")), matrix(layer, place));
      button.addEventListener("click", () => {
        show(layer, place);
        element("controls").scrollIntoView({block: "start", behavior: "smooth"});
      });
    }
  });
}
fillSide("from");
fillSide("to");
data.heads.forEach((_, layer) => { make("option", layer, element("layer")).value = layer; });
fillGrid();
element("layer").addEventListener("change", event => show(Number(event.target.value), state.place));
element("head").addEventListener("change", event => show(state.layer, Number(event.target.value)));
for (const id of ["specials", "part"]) if (element(id)) element(id).addEventListener("change", draw);
window.addEventListener("resize", draw);
const [layer, place] = location.hash.slice(1).split("-").map(Number);  // #1-0: layer 1, its first head
if (data.heads[layer] && place >= 0 && place < data.heads[layer].length) show(layer, place);
else show(0, 0);
"""
