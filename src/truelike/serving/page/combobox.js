// A text field with suggestions, after the combobox pattern of the ARIA Authoring Practices.

import { isAborted, latest } from "./api.js";
import { announce, count, el } from "./dom.js";

const DELAY = 120; // milliseconds after the last key

/**
 * @param input - The text field; its `aria-controls` names the list of suggestions.
 * @param find - Async (text, signal) => suggestions {value, label, detail}.
 * @param choose - Called with a suggestion, or with {value: text} when Enter is pressed on `free` text.
 * @param options - `free`: whether text that is no suggestion can be chosen; `noun`: what is suggested.
 */
export function combobox(input, find, choose, { free = false, noun = "suggestion" } = {}) {
  const list = document.getElementById(input.getAttribute("aria-controls"));
  let suggestions = [];
  let active = -1;
  let timer = 0;
  let opening = null; // suggestions that an arrow key has asked for

  function show(found) {
    suggestions = found;
    active = -1;
    list.replaceChildren(
      ...found.map((each, n) =>
        el(
          "li",
          { role: "option", id: `${list.id}-${n}`, "aria-selected": "false", onmousedown: (event) => pick(event, n) },
          el("span", { class: "option-label" }, each.label),
          each.detail ? el("span", { class: "option-detail" }, each.detail) : null,
        ),
      ),
    );
    const isOpen = found.length > 0;
    list.hidden = !isOpen;
    input.setAttribute("aria-expanded", String(isOpen));
    input.removeAttribute("aria-activedescendant");
  }

  const close = () => {
    clearTimeout(timer);
    latest(input.id);
    show([]);
  };

  function pick(event, n) {
    event.preventDefault();
    take(suggestions[n]);
  }

  function take(suggestion) {
    close();
    choose(suggestion);
  }

  function move(to) {
    if (!suggestions.length) return;
    active = (to + suggestions.length) % suggestions.length;
    [...list.children].forEach((option, n) => option.setAttribute("aria-selected", String(n === active)));
    const option = list.children[active];
    input.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  }

  async function suggest() {
    try {
      const found = await find(input.value.trim(), latest(input.id));
      if (document.activeElement !== input) return;
      show(found);
      announce(found.length ? count(found.length, noun) : `no ${noun}`);
    } catch (error) {
      if (!isAborted(error)) close(); // the banner says what is wrong
    }
  }

  const open = () => {
    opening ??= suggest().finally(() => {
      opening = null;
    });
    return opening;
  };

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(suggest, DELAY);
  });
  input.addEventListener("click", () => list.hidden && suggest());
  input.addEventListener("blur", close);
  input.addEventListener("keydown", async (event) => {
    if (event.isComposing) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) await open();
      if (event.key === "ArrowDown") move(active + 1);
      else move(active < 0 ? suggestions.length - 1 : active - 1);
    } else if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      close();
    } else if (event.key === "Enter") {
      event.preventDefault();
      const text = input.value.trim();
      if (active >= 0) take(suggestions[active]);
      else if (text && free) take({ value: text, label: text });
      else if (text) {
        const found = await find(text, latest(input.id)).catch(() => null);
        if (found?.length) take(found.find((each) => each.value === text) ?? found[0]);
        else if (found) announce(`no ${noun}`);
      }
    }
  });
}
