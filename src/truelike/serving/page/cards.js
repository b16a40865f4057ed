// The cards of the models: settings, metrics, data and the learning curve.

import { count, el, number, svg } from "./dom.js";

const WIDTH = 380;
const HEIGHT = 200;
const EDGE = { left: 56, right: 12, top: 12, bottom: 40 };

const date = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });
const when = (text) => (text ? date.format(new Date(text)) : "unknown");
const words = (name) => name.replaceAll("_", " ");

function plain(value) {
  if (value === null) return "not given";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map(plain).join(", ");
  if (typeof value !== "object") return number(value);
  return Object.entries(value).map(([name, each]) => `${words(name)} ${plain(each)}`).join(", ");
}

const table = (caption, rows) =>
  el(
    "table",
    { class: "pairs" },
    el("caption", { class: "visually-hidden" }, caption),
    el("tbody", {}, rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value)))),
  );

const part = (heading, ...content) => el("section", {}, el("h3", {}, heading), ...content);

/** All cards. */
export const cards = (models) => models.map((model) => card(model, models.length));

function card(model, models) {
  const id = `card-${model.name}`;
  const metrics = Object.entries(model.metrics);
  const parameters = Object.entries(model.parameters).map(([name, value]) => [el("code", {}, name), plain(value)]);
  const ranking = Object.entries(model.ranking).map(([name, value]) => [words(name), plain(value)]);
  return el(
    "article",
    { class: "panel card", "aria-labelledby": id },
    el(
      "div",
      { class: "head" },
      el("h2", { id }, model.name),
      el(
        "p",
        { class: "meta" },
        el("span", {}, el("strong", {}, model.class_name)),
        el("span", {}, "version ", el("code", {}, model.version)),
        models > 1 ? el("span", {}, `${number(Math.round(1000 * model.share) / 10)} % of the users`) : null,
        el("span", {}, `saved ${when(model.saved)}`),
        el("span", {}, `loaded ${when(model.loaded)}`),
        el("span", {}, `truelike ${model.library_version}`),
      ),
    ),
    model.choice?.reason
      ? part(
          "Why this model",
          el("p", {}, model.choice.reason),
          model.choice.outlook ? el("p", { class: "muted" }, model.choice.outlook) : null,
        )
      : null,
    model.probabilities ? part("Probabilities of likes", el("p", {}, model.probabilities.note)) : null,
    part("Learning curve", ...curves(model)),
    el(
      "div",
      { class: "parts" },
      el(
        "div",
        {},
        part(
          "Metrics",
          metrics.length
            ? table("Metrics", metrics.map(([name, value]) => [name, number(value)]))
            : el("p", { class: "muted" }, "None was saved with the model."),
        ),
        part("Ranking", table("Ranking", ranking)),
      ),
      part("Data", table("Data", Object.entries(model.data).map(([name, value]) => [words(name), plain(value)]))),
      part("Parameters", table("Parameters", parameters)),
    ),
  );
}

function curves(model) {
  const history = model.history;
  const names = history ? Object.keys(history).filter((name) => name !== "epoch" && name !== "seconds") : [];
  const epochs = history?.epoch?.map((epoch) => epoch + 1) ?? [];
  if (!epochs.length || !names.length) return [el("p", { class: "muted" }, "This model is not trained in epochs.")];
  const metrics = names.filter((name) => name !== "loss");
  const metric = metrics.includes(model.parameters.metric) ? model.parameters.metric : metrics[0];
  const shown = ["loss", metric].filter((name) => names.includes(name));
  const titles = { loss: "loss", [metric]: `${metric} on validation` };
  return [
    el("div", { class: "curves" }, shown.map((name) => curve(titles[name], epochs, history[name]))),
    el(
      "details",
      {},
      el("summary", {}, "Values by epoch"),
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Values by epoch" },
        el(
          "table",
          { class: "values" },
          el("thead", {}, el("tr", {}, ["epoch", ...names].map((name) => el("th", { scope: "col" }, name)))),
          el("tbody", {}, epochs.map((epoch, n) =>
            el(
              "tr",
              {},
              el("th", { scope: "row" }, epoch),
              names.map((name) => el("td", { class: "figure" }, number(history[name][n] ?? "–"))),
            ),
          )),
        ),
      ),
    ),
  ];
}

/** Round values that divide a range, and the decimals that tell them apart. */
function ticks(low, high, wanted) {
  const raw = (high - low || Math.abs(high) || 1) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= raw) ?? 10);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) found.push(value);
  return { values: found, decimals: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

/** A line over epochs, with axes and a text alternative. */
function curve(name, epochs, values) {
  const points = epochs.map((epoch, n) => [epoch, values[n]]).filter(([, value]) => Number.isFinite(value));
  if (!points.length) return el("p", { class: "muted" }, `${name}: no values.`);
  const [first, last] = [points[0], points.at(-1)];
  let low = Math.min(...points.map(([, value]) => value));
  let high = Math.max(...points.map(([, value]) => value));
  const text =
    `${name} by epoch: ${number(first[1])} in epoch ${first[0]}, ${number(last[1])} in epoch ${last[0]}; ` +
    `lowest ${number(low)}, highest ${number(high)}.`;
  if (low === high) [low, high] = [low - Math.abs(low || 1) / 10, high + Math.abs(high || 1) / 10];
  const space = (high - low) * 0.08;
  [low, high] = [low - space, high + space];
  const right = WIDTH - EDGE.right;
  const bottom = HEIGHT - EDGE.bottom;
  const x = (epoch) => (epochs.length === 1 ? (EDGE.left + right) / 2
    : EDGE.left + 6 + ((epoch - epochs[0]) / (epochs.at(-1) - epochs[0])) * (right - EDGE.left - 12));
  const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - EDGE.top);
  const marks = ticks(low, high, 4);
  const across = ticks(epochs[0], epochs.at(-1), 6).values.filter(Number.isInteger);
  return el(
    "figure",
    {},
    svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": text, class: "curve" },
      marks.values.map((value) => [
        svg("line", { class: "grid", x1: EDGE.left, x2: right, y1: y(value), y2: y(value) }),
        svg("text", { x: EDGE.left - 8, y: y(value), "text-anchor": "end", "dominant-baseline": "central" },
          value.toFixed(Math.min(8, marks.decimals)).replace("-", "\u2212")),
      ]),
      (across.length ? across : [epochs[0]]).map((epoch) =>
        svg("text", { x: x(epoch), y: bottom + 16, "text-anchor": "middle" }, epoch)),
      svg("line", { class: "axis", x1: EDGE.left, x2: right, y1: bottom, y2: bottom }),
      svg("text", { class: "label", x: (EDGE.left + right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, "epoch"),
      svg("polyline", { points: points.map(([epoch, value]) => `${x(epoch)},${y(value)}`).join(" ") }),
      points.length <= 40
        ? points.map(([epoch, value]) => svg("circle", { cx: x(epoch), cy: y(value), r: 2.5 }))
        : null,
    ),
    el("figcaption", {}, name),
  );
}

/** What the served models were trained on, in a line. */
export function trainedOn(models) {
  const { data } = models[0];
  const named = models.map((model) => `${model.name} (${model.class_name})`).join(", ");
  const size = `${count(data.users, "user")}, ${count(data.items, "item")}, ${count(data.interactions, "interaction")}`;
  return `${data.name ? `${data.name}: ` : ""}${size}. ${models.length === 1 ? "Model" : "Models"}: ${named}.`;
}
