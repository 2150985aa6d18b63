// Brings a part of the page up to date in place, so that focus, selection and scroll positions stay.
import { localize } from "./times.js";

export function morph(target, html) {
  const wanted = document.createElement("template");
  wanted.innerHTML = html;
  localize(wanted.content);
  children(target, wanted.content);
}

function children(old, wanted) {
  const before = [...old.childNodes];
  const after = [...wanted.childNodes];
  after.forEach((node, place) => {
    if (place >= before.length) old.append(node);
    else if (!same(before[place], node)) before[place].replaceWith(node);
    else if (node.nodeType === Node.ELEMENT_NODE) element(before[place], node);
    else if (before[place].nodeValue !== node.nodeValue) before[place].nodeValue = node.nodeValue;
  });
  before.slice(after.length).forEach((node) => node.remove());
}

const same = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName && one.id === other.id;

function element(old, wanted) {
  for (const { name, value } of wanted.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!wanted.hasAttribute(name) && name !== "hidden" && name !== "aria-pressed") old.removeAttribute(name);
  children(old, wanted);
}
