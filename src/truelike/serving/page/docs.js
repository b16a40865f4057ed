// The page of the API, made of /openapi.json.

import { ApiError, apiKey, ask, connection, isAborted, latest, tryNow, useKey } from "./api.js";
import { announce, byId, el, number } from "./dom.js";

let api = null; // the document
const samples = { user: "USER", item: "ITEM", items: ["ITEM"] }; // ids that exist, for the examples

const resolved = (schema) => {
  if (!schema?.$ref) return schema ?? {};
  return api.components.schemas[schema.$ref.split("/").at(-1)];
};
const json = (about) => about?.content?.["application/json"]?.schema;
const slug = (method, path) => `${method}-${path.slice(1).replace(/[^a-z0-9]+/g, "-")}`;

// --- schemas as tables ----------------------------------------------------------------------------

/** A type in words, and the class that it is or contains. */
function kind(schema) {
  if (schema.$ref) {
    const about = resolved(schema);
    return about.enum ? [about.enum.map((value) => JSON.stringify(value)).join(" or "), null] : ["object", about];
  }
  if (schema.anyOf) {
    const kinds = schema.anyOf.map(kind);
    return [kinds.map(([word]) => word).join(" or "), kinds.find(([, inner]) => inner)?.[1] ?? null];
  }
  if (schema.const !== undefined) return [JSON.stringify(schema.const), null];
  if (schema.enum) return [schema.enum.map((value) => JSON.stringify(value)).join(" or "), null];
  if (schema.type === "array") {
    const [word, inner] = kind(schema.items ?? {});
    return [`list of ${word}`, inner];
  }
  if (schema.type === "object" && typeof schema.additionalProperties === "object") {
    return [`object of ${kind(schema.additionalProperties)[0]}`, null];
  }
  return [schema.type ?? "anything", null];
}

/** The limits of a value in words. */
function limits(schema) {
  const own = [schema, ...(schema.anyOf ?? [])].reduce((all, each) => ({ ...each, ...all }), {});
  const found = [];
  const add = (text, value) => value !== undefined && found.push(`${text} ${number(value)}`);
  add("at least", own.minimum);
  add("at most", own.maximum);
  add("more than", own.exclusiveMinimum);
  add("less than", own.exclusiveMaximum);
  if (own.maxLength !== undefined) found.push(`at most ${number(own.maxLength)} letters`);
  if (own.maxItems !== undefined) found.push(`at most ${number(own.maxItems)} entries`);
  if (own.minItems !== undefined && own.minItems > 0) found.push(`at least ${number(own.minItems)} entries`);
  if (own.pattern !== undefined) found.push(`pattern ${own.pattern}`);
  return found.join(", ");
}

/** A description with the code that it has between backquotes. */
const prose = (text) => text.split("`").map((part, n) => (n % 2 ? el("code", {}, part) : part));

const describedAt = (schema) => schema.description ?? schema.anyOf?.find((each) => each.description)?.description;

/** The words about a parameter; those of the same field elsewhere, if it has none of its own. */
function description(name, schema) {
  const own = describedAt(schema);
  if (own) return own;
  for (const [called, about] of Object.entries(api.components.schemas)) {
    const same = about.properties?.[name];
    if (/(Request|Options)$/.test(called) && same && describedAt(same)) return describedAt(same);
  }
  return "";
}

/** A table of fields; what is inside of them follows, further in. */
function fields(schema, { isAnswer = false } = {}) {
  const rows = [];
  const add = (properties, required, level, seen) => {
    for (const [name, about] of Object.entries(properties ?? {})) {
      const [word, inner] = kind(about);
      const isRequired = required?.includes(name);
      const preset = about.default !== undefined && about.default !== null ? JSON.stringify(about.default) : null;
      const more = [limits(about), preset !== null && !isAnswer ? `default ${preset}` : ""].filter(Boolean).join("; ");
      rows.push(
        el(
          "tr",
          {},
          el("th", { scope: "row", class: `level-${level}` }, el("code", {}, name),
            isRequired && !isAnswer ? el("span", { class: "badge" }, "required") : null),
          el("td", {}, word.replace(" or null", ""), more ? el("div", { class: "hint" }, more) : null),
          el("td", {}, prose((isAnswer ? describedAt(about) : description(name, about)) || inner?.description || "")),
        ),
      );
      if (inner && level < 3 && !seen.includes(inner)) {
        add(inner.properties, inner.required, level + 1, [...seen, inner]);
      }
    }
  };
  add(schema.properties, schema.required, 0, [schema]);
  if (!rows.length) return el("p", { class: "muted" }, "None.");
  return el(
    "div",
    { class: "scroll" },
    el(
      "table",
      { class: "fields" },
      el("thead", {}, el("tr", {}, ["Name", "Type", "Meaning"].map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, rows),
    ),
  );
}

const asSchema = (parameters) => ({
  properties: Object.fromEntries(
    parameters.map(({ name, description, schema }) => [name, { description, ...schema }]),
  ),
  required: parameters.filter((each) => each.required).map((each) => each.name),
});

// --- examples -------------------------------------------------------------------------------------

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

const BODIES = {
  "/v1/recommend": () => ({ user: samples.user, k: 5, because: 2 }),
  "/v1/recommend/batch": () => ({ users: [samples.user], k: 5 }),
  "/v1/similar": () => ({ item: samples.item, k: 5 }),
  "/v1/explain": () => ({ user: samples.user, explain: [samples.item] }),
  "/v1/events": () => ({ events: [{ user: samples.user, item: samples.item, type: "click" }] }),
};

function example(method, path, operation) {
  const parts = ["curl"];
  const required = (operation.parameters ?? []).filter((each) => each.required);
  const query = new URLSearchParams(required.map((each) => [each.name, samples[each.name] ?? "..."]));
  if (api.security && needsKey(path)) parts.push('-H "Authorization: Bearer $TRUELIKE_API_KEY"');
  if (method === "post") {
    const body = BODIES[path]?.();
    if (body) parts.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
    else parts.push("-X POST");
  }
  parts.push(quoted(`${location.origin}${path}${required.length ? `?${query}` : ""}`));
  return parts.join(" \\\n  ");
}

const needsKey = (path) => !["/healthz", "/readyz"].includes(path);

function copyable(text) {
  const button = el("button", { type: "button", class: "quiet small" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      announce("Copied");
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select the text to copy it";
    }
    setTimeout(() => {
      button.textContent = "Copy";
    }, 2_000);
  });
  const shown = el("pre", { tabindex: "0", role: "region", "aria-label": "Example" }, el("code", {}, text));
  return el("div", { class: "example" }, shown, button);
}

// --- try it ---------------------------------------------------------------------------------------

function tryIt(path, operation) {
  const id = slug("try", path);
  const parameters = operation.parameters ?? [];
  const output = el("pre", { class: "output", tabindex: "0", role: "region", "aria-label": "Answer", hidden: true });
  const status = el("p", { class: "hint", role: "status" });
  const inputs = parameters.map((parameter) => {
    const name = `${id}-${parameter.name}`;
    const value = parameter.required ? (samples[parameter.name] ?? "") : "";
    const choices = parameter.schema.enum ?? (parameter.schema.type === "boolean" ? ["true", "false"] : null);
    const preset = parameter.schema.default;
    const field = choices
      ? el(
          "select",
          { id: name, name: parameter.name },
          ["", ...choices].map((each) => el("option", { value: each }, each || "default")),
        )
      : el("input", { id: name, name: parameter.name, type: "text", value, autocomplete: "off", spellcheck: "false",
          required: parameter.required, placeholder: preset === undefined ? "" : String(preset) });
    return el("div", { class: "field" }, el("label", { for: name }, parameter.name), field);
  });
  const send = el("button", { type: "submit", class: "primary" }, `Send GET ${path}`);
  const form = el("form", { class: "try" }, inputs, send);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const query = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
    const begun = performance.now();
    status.textContent = "Waiting for the answer";
    try {
      const { code, text } = await raw(path, query, latest(id));
      status.textContent = `Status ${code}, ${Math.round(performance.now() - begun)} ms`;
      output.textContent = text;
      output.hidden = false;
    } catch (error) {
      if (!isAborted(error)) status.textContent = "The server does not answer.";
    }
  });
  return el("details", {}, el("summary", {}, "Try it"), form, status, output);
}

/** The answer as it is, errors too. */
async function raw(path, query, signal) {
  const headers = apiKey() === null ? {} : { authorization: `Bearer ${apiKey()}` };
  const search = new URLSearchParams(query).toString();
  const response = await fetch(search ? `${path}?${search}` : path, { headers, signal });
  const text = await response.text();
  try {
    return { code: response.status, text: JSON.stringify(JSON.parse(text), null, 2) };
  } catch {
    return { code: response.status, text };
  }
}

// --- the page -------------------------------------------------------------------------------------

const verb = (method) => el("span", { class: `method ${method}` }, method.toUpperCase());

function route(method, path, operation) {
  const body = resolved(json(operation.requestBody));
  const [answered] = Object.keys(operation.responses);
  const answer = resolved(json(operation.responses[answered]));
  const part = (heading, ...content) => el("div", { class: "part" }, el("h3", {}, heading), ...content);
  const statuses = Object.entries(operation.responses).map(([code, about]) => [
    el("dt", {}, code),
    el("dd", {}, about.description),
  ]);
  const id = slug(method, path);
  return el(
    "section",
    { class: "panel route", "aria-labelledby": id },
    el("h2", { id }, verb(method), " ", el("code", {}, path)),
    el("p", {}, `${operation.summary}.`),
    part("Example", copyable(example(method, path, operation))),
    method === "get" ? tryIt(path, operation) : null,
    operation.parameters?.length ? part("Parameters", fields(asSchema(operation.parameters))) : null,
    operation.requestBody ? part("Body", fields(body)) : null,
    answer?.properties
      ? el("details", {}, el("summary", {}, "Answer"), fields(answer, { isAnswer: true }))
      : null,
    el("details", {}, el("summary", {}, "Statuses"), el("dl", { class: "terms" }, statuses)),
  );
}

async function start() {
  api = await ask("/openapi.json");
  byId("about").textContent = `${api.info.title} ${api.info.version}. ${api.info.description}`;
  byId("docs-key-form").hidden = !api.security;
  try {
    const [users, items] = await Promise.all([
      api.security && apiKey() === null ? null : ask("/v1/users", { query: { limit: 1 } }),
      api.security && apiKey() === null ? null : ask("/v1/items", { query: { limit: 1 } }),
    ]);
    if (users?.users.length) [samples.user] = users.users;
    if (items?.items.length) samples.item = items.items[0].item;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
  const all = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => [method, path, operation]));
  byId("routes").replaceChildren(...all.map((each) => route(...each)));
  byId("contents").replaceChildren(
    el("ul", {}, all.map(([method, path]) =>
      el("li", {}, el("a", { href: `#${slug(method, path)}` }, verb(method), " ", path)))),
  );
  byId("api").setAttribute("aria-busy", "false");
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

const begin = () => start().catch(() => {}); // without a server, the banner says so

connection.addEventListener("offline", () => {
  byId("banner").hidden = false;
  byId("banner").replaceChildren(
    el("p", {}, "The server does not answer; trying again."),
    el("button", { type: "button", onclick: tryNow }, "Try now"),
  );
});
connection.addEventListener("online", () => {
  byId("banner").hidden = true;
  begin();
});
byId("docs-key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(byId("docs-key").value.trim());
  begin();
});
begin();
