"use strict";
// Helpers for all parts of the page.

const INK = "#1d2733", SOFT = "#66727f", LINE = "#e3e7eb";
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
// From fresh to old: one hue that gets darker, readable in grey and by the colour-blind.
const AGE_SCALE = [[0, "#e9edf1"], [0.02, "#fbdca8"], [0.25, "#f4b35a"], [0.5, "#e07f24"], [0.75, "#ad4a0c"], [1, "#5e2206"]];
const touch = window.matchMedia("(pointer: coarse)").matches;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const at = (id) => document.getElementById(id);

function number(value, digits) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// Plotly reads a few tags in its texts; names come from folders and files.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function fade(colour, alpha) {
  const [r, g, b] = [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

function ageColour(share) {
  const upper = AGE_SCALE.findIndex(([place]) => place >= share);
  if (upper <= 0) return AGE_SCALE[0][1];
  const [[low, from], [high, to]] = [AGE_SCALE[upper - 1], AGE_SCALE[upper]];
  const mix = (share - low) / (high - low);
  const part = (start) => {
    const [a, b] = [from, to].map((colour) => parseInt(colour.slice(start, start + 2), 16));
    return Math.round(a + mix * (b - a)).toString(16).padStart(2, "0");
  };
  return `#${part(1)}${part(3)}${part(5)}`;
}

// A live page is redrawn often. An element that has not changed is kept: a button that is replaced during a click would
// miss the click, and an open list would close.
const drawn = new WeakMap();
function isDrawn(element, what) {
  const now = JSON.stringify(what), same = drawn.get(element) === now;
  drawn.set(element, now);
  return same;
}

// A group of buttons with one choice; arrow keys move it.
function fillSwitch(element, choices, chosen, choose) {
  if (isDrawn(element, [choices, chosen])) return;
  element.replaceChildren(...choices.map(({ key, title, why }) => make("button", {
    type: "button", role: "radio", "data-key": key, "aria-checked": String(key === chosen),
    tabindex: key === chosen ? "0" : "-1", disabled: Boolean(why), title: why || null, onclick: () => choose(key),
  }, title)));
  element.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const open = choices.filter((choice) => !choice.why);
    if (!step || !open.length) return;
    event.preventDefault();
    const next = open[(open.findIndex((choice) => choice.key === chosen) + step + open.length) % open.length];
    choose(next.key);
    element.querySelector(`[data-key="${next.key}"]`).focus();
  };
}

// A list with one choice.
function fillSelect(element, titles, chosen) {
  if (isDrawn(element, [titles, chosen])) return;
  element.replaceChildren(...titles.map((title, place) => make("option", { value: place, selected: place === chosen }, title)));
}

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // a page from a file may not be allowed to
    const area = make("textarea", { style: "position:fixed;opacity:0" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}
