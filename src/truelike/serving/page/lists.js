// How lists, histories, hidden likes and similar items are shown. Nothing is asked of the server here.

import { byId, count, el, listed, named, number, percent, scoreFormat, spoken } from "./dom.js";

const SOURCES = {
  model: ["model", "from the user as trained"],
  fold_in: ["history and new events", "computed from history and new events, without training"],
  items: ["given items", "computed from the given items, without training"],
  unkept: ["history and likes, not kept", "computed from history and likes that the server does not keep"],
  popular: ["popular items", "nothing is known of this user"],
};
const METHODS = {
  exact: "computed exactly",
  leave_one_out: "computed by leaving out each interaction in turn",
};

/** Replace the content of a section; the focus stays on what has the same `data-key`. */
export function replace(section, ...content) {
  const focused = section.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  section.replaceChildren(...content.flat().filter(Boolean));
  if (focused !== undefined) section.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

const badge = (text, kind = "") => el("span", { class: `badge ${kind}`.trim() }, text);

/** A button with the title of an item, which opens similar items. */
function title(item, open) {
  const attributes = {
    class: "title", type: "button", "aria-haspopup": "dialog", "data-key": `open ${item.item}`,
    onclick: () => open(item),
  };
  return el("button", attributes, named(item), spoken(", similar items"));
}

const id = (item) => (item.title ? el("span", { class: "id" }, item.item) : null);

function bar(share) {
  const inner = el("span");
  inner.style.inlineSize = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return el("span", { class: "bar", "aria-hidden": "true" }, inner);
}

/** What the numbers of a model are, in a word: a badge. */
const evidenceBadge = (evidence) => {
  if (!evidence.identified) return badge("ranking only", "unknown");
  return badge(evidence.evidence.startsWith("assumed") ? "probabilities, assumed exposure" : "probabilities");
};

/**
 * Scores with bars. A bar is p(like) where the items have it; otherwise the share of the largest score, and there is none
 * where scores are negative.
 */
function scores(items) {
  const all = items.map((item) => item.score);
  const top = Math.max(...all.filter((score) => score !== null));
  const format = scoreFormat(all);
  const barred = top > 0 && all.every((score) => score === null || score >= 0);
  return (item) =>
    el(
      "span",
      { class: "score" },
      spoken("score "),
      el("span", { class: "figure" }, format(item.score)),
      ...(typeof item.probability === "number"
        ? [el("span", { class: "likely" }, "p(like) ", percent(item.probability)), bar(item.probability)]
        : [barred && item.score !== null ? bar(item.score / top) : null]),
    );
}

function because(item) {
  if (!item.because?.length) return null;
  const reasons = item.because.map((reason) => el("em", {}, named(reason)));
  return el("p", { class: "because" }, "because of ", ...reasons.flatMap((each, n) => (n ? [" and ", each] : [each])));
}

/** Placeholders of the size of what is being loaded. */
export const skeleton = (rows) =>
  el(
    "div",
    { class: "skeleton", "aria-hidden": "true" },
    Array.from({ length: Math.min(rows, 20) }, () => el("span")),
  );

/**
 * A list for a user.
 *
 * @param list - {heading, loading, error, wanted, answer, items, ended}; `foldedIn`: what was folded in (a key of
 *   SOURCES); `fresh`, `liked`: sets of ids; `marks`: [text, class] by id; `summary`: how it differs from another list;
 *   `evidence`: what p(like) is known from, where items have it
 * @param on - {like, undo, open, more}
 */
export function showList(section, list, on) {
  const { answer } = list;
  section.setAttribute("aria-busy", String(list.loading));
  const heading = el("h2", { id: `${section.id}-heading`, tabindex: "-1" }, list.heading);
  if (list.error) {
    replace(section, el("div", { class: "head" }, heading), list.error);
    return;
  }
  if (!answer) {
    replace(section, el("div", { class: "head" }, heading), spoken("Loading"), skeleton(list.wanted));
    return;
  }
  const [word, explained] = SOURCES[answer.source === "fold_in" ? list.foldedIn : answer.source];
  const events = answer.events ? `; ${count(answer.events, "new event")} counted` : "";
  const head = el(
    "div",
    { class: "head" },
    heading,
    el(
      "p",
      { class: "meta" },
      el("span", {}, "model ", el("strong", {}, answer.model)),
      el("span", {}, "version ", el("code", {}, answer.version)),
    ),
    el("p", { class: "meta" }, badge(word, `source ${answer.source}`), el("span", {}, explained + events)),
    list.summary ? el("p", { class: "summary" }, list.summary) : null,
  );
  const score = scores(list.items);
  const entries = list.items.map((item) => entry(item, list, score, on));
  const ranking = el("ol", { class: "ranking", role: "list" }, entries);
  const method = list.items.find((item) => item.method)?.method;
  const foot = el(
    "div",
    { class: "foot" },
    list.ended
      ? el("p", { class: "muted" }, list.items.length ? "This is the end of the list." : "No item is left to list.")
      : el(
          "button",
          { type: "button", "data-key": "more", "aria-disabled": String(list.loading), onclick: on.more },
          "More",
        ),
    method
      ? el("p", { class: "hint" }, `Reasons are the interactions that raise a score most, ${METHODS[method]}.`)
      : null,
    list.evidence
      ? el(
          "p",
          { class: "hint evidence" },
          "p(like) is how probable a like is by taste, before what was shown to this user counts. ",
          list.evidence.note,
        )
      : null,
  );
  replace(section, head, ranking, foot);
}

function entry(item, list, score, on) {
  const marks = [
    list.fresh?.has(item.item) ? badge("new in the list", "fresh") : null,
    list.marks?.get(item.item) ? badge(...list.marks.get(item.item)) : null,
    item.pinned ? badge("pinned") : null,
  ];
  const isLiked = list.liked.has(item.item);
  const press = () => (isLiked ? on.undo(item) : on.like(item));
  const button = el(
    "button",
    { class: "like", type: "button", "data-key": `like ${item.item}`, onclick: press },
    isLiked ? "Undo" : "Like",
    spoken(isLiked ? ` the like of ${named(item)}` : ` ${named(item)}`),
  );
  const changed = list.marks?.get(item.item)?.[1] ?? "";
  return el(
    "li",
    { class: `entry ${changed}`.trim(), "data-item": item.item },
    el("span", { class: "rank" }, spoken("rank "), item.rank),
    el(
      "div",
      { class: "what" },
      el("p", { class: "name" }, title(item, on.open), " ", id(item), " ", marks),
      because(item),
    ),
    score(item),
    button,
  );
}

/** How a list differs from another one: a text and a class for each item, and a sentence. */
export function differences(mine, other) {
  const ranks = new Map(other.map((item) => [item.item, item.rank]));
  const marks = new Map();
  let both = 0;
  let same = 0;
  for (const item of mine) {
    const rank = ranks.get(item.item);
    if (rank === undefined) {
      marks.set(item.item, ["only here", "only"]);
      continue;
    }
    both += 1;
    if (rank === item.rank) same += 1;
    else if (rank > item.rank) marks.set(item.item, [`${rank - item.rank} up`, "up"]);
    else marks.set(item.item, [`${item.rank - rank} down`, "down"]);
  }
  const summary =
    same === mine.length && mine.length === other.length
      ? "Both lists are the same."
      : `${both} of ${count(mine.length, "item")} are in both lists, ${same} at the same place.`;
  return { marks, summary };
}

/**
 * What a user interacted with, or the items of a new user.
 *
 * @param past - {heading, loading, error, items, total, note, removable: (item) => label or null}
 * @param on - {remove, open, all}
 */
export function showHistory(section, past, on) {
  section.setAttribute("aria-busy", String(past.loading));
  const heading = el("h2", { id: "history-heading", tabindex: "-1" }, past.heading);
  if (past.error || !past.items) {
    replace(section, el("div", { class: "head" }, heading), past.error ?? skeleton(8));
    return;
  }
  const rows = past.items.map((item) => {
    const label = past.removable(item);
    const badges = [
      item.unknown ? badge("not known to the model", "unknown") : null,
      item.event ? badge(item.event, "event") : null,
    ];
    return el(
      "li",
      { "data-item": item.item },
      el("p", { class: "name" }, title(item, on.open), " ", id(item), " ", badges),
      label
        ? el(
            "button",
            { class: "quiet small", type: "button", "data-key": `undo ${item.item}`, onclick: () => on.remove(item) },
            label,
            spoken(` ${named(item)}`),
          )
        : null,
    );
  });
  const total = past.total ?? rows.length;
  replace(
    section,
    el("div", { class: "head" }, heading, el("p", { class: "meta" }, past.note)),
    rows.length ? el("ul", { class: "past", role: "list" }, rows) : el("p", { class: "muted" }, past.nothing),
    total > rows.length
      ? el("div", { class: "foot" },
          el("p", { class: "muted" }, `The first ${number(rows.length)} of ${number(total)}.`),
          rows.length < 1_000
            ? el("button", { type: "button", "data-key": "all", onclick: on.all }, "Show more")
            : null)
      : null,
  );
}

/** Likes that were never recorded. There are figures only where they are probabilities. */
export function showHidden(section, answer, on) {
  section.hidden = answer === null;
  if (answer === null) {
    section.replaceChildren();
    return;
  }
  const { identified } = answer;
  const rows = answer.items.map((item) =>
    el(
      "tr",
      { "data-item": item.item },
      el("td", { class: "figure" }, item.rank),
      el("th", { scope: "row" }, title(item, on.open), " ", id(item)),
      identified
        ? [
            el("td", { class: "figure" }, percent(item.posterior), bar(item.posterior)),
            el("td", { class: "figure" }, percent(item.flip_probability)),
          ]
        : null,
    ),
  );
  replace(
    section,
    el(
      "div",
      { class: "head" },
      el("h2", { id: "hidden-heading" }, "Hidden likes"),
      el("p", { class: "meta" }, evidenceBadge(answer), el("span", {}, "model ", el("strong", {}, answer.model))),
    ),
    el("p", {}, "Items that the user may like, though there was no interaction. ", answer.note),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of hidden likes" },
      el(
        "table",
        { class: "hidden" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            ["Rank", "Item", ...(identified ? ["Probability", "Flip probability"] : [])].map((text) =>
              el("th", { scope: "col" }, text),
            ),
          ),
        ),
        el("tbody", {}, rows),
      ),
    ),
    identified
      ? el(
          "dl",
          { class: "terms" },
          el("dt", {}, "Probability"),
          el("dd", {}, "How probable it is that the user likes the item, given that there was no interaction."),
          el("dt", {}, "Flip probability"),
          el(
            "dd",
            {},
            "If the user likes the item: how probable it is that no interaction was recorded. ",
            "Near 0: the item was shown to the user, and not taken.",
          ),
        )
      : null,
  );
}

/**
 * Items similar to one, in the dialog.
 *
 * @param shown - {item, attributes, answer, error, trail}
 * @param on - {open, back, close}
 */
export function showSimilar(dialog, shown, on) {
  const { item, answer, error } = shown;
  const attributes = Object.entries(shown.attributes ?? {});
  const score = answer ? scores(answer.items) : null;
  const before = shown.trail.at(-1);
  dialog.setAttribute("aria-busy", String(!answer && !error));
  dialog.replaceChildren(
    ...[
      el(
        "div",
        { class: "head" },
        el("h2", { id: "similar-heading", tabindex: "-1" }, named(item)),
        el("button", { class: "quiet", type: "button", onclick: on.close }, "Close"),
      ),
      el(
        "p",
        { class: "meta" },
        el("span", {}, "item ", el("code", {}, item.item)),
        answer ? el("span", {}, "model ", el("strong", {}, answer.model)) : null,
      ),
      attributes.length
        ? el("dl", { class: "terms" }, attributes.flatMap(([name, value]) => [
            el("dt", {}, name),
            el("dd", {}, Array.isArray(value) ? listed(value.map(String)) : String(value)),
          ]))
        : null,
      before
        ? el("button", { class: "quiet small", type: "button", onclick: on.back }, `Back to ${named(before)}`)
        : null,
      el("h3", {}, "Similar items"),
      error ?? null,
      answer
        ? el(
            "ol",
            { class: "ranking", role: "list" },
            answer.items.map((each) =>
              el(
                "li",
                { class: "entry" },
                el("span", { class: "rank" }, each.rank),
                el("p", { class: "name" }, title(each, on.open), " ", id(each)),
                score(each),
              ),
            ),
          )
        : error
          ? null
          : skeleton(10),
      el("p", { class: "foot" }, el("a", { href: on.address(item) }, "A list for a new user with this item")),
    ].filter(Boolean),
  );
  byId("similar-heading").focus();
}

/** An error in place of a list, with what can be done. */
export function problem(text, action = null) {
  return el(
    "div",
    { class: "failure", role: "alert" },
    el("p", {}, text),
    action ? el("button", { type: "button", class: "primary", onclick: action.do }, action.label) : null,
  );
}
