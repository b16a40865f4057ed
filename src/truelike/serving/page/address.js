// The state of the page in its address, so that a link can be shared and Back works.

export const DEFAULTS = Object.freeze({
  view: "lists",
  user: null, // an id
  items: null, // the ids of a new user's items
  model: null, // a name; null: by the share of each model
  k: 10,
  diversity: 0,
  filter: "",
  seen: false, // whether seen items are included
  compare: null, // the model of a second list
  compareDiversity: 0,
  popular: false, // whether an unknown user gets popular items
});

const between = (text, low, high, otherwise) => {
  const value = Number(text);
  return text !== null && text !== "" && value >= low && value <= high ? value : otherwise;
};

// ids are separated by commas; a comma in an id is escaped
const escaped = (id) => id.replaceAll("%", "%25").replaceAll(",", "%2C");
const unescaped = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

/** The state that an address stands for. */
export function read(search) {
  const given = new URLSearchParams(search);
  const items = given.get("items");
  return {
    view: given.get("view") === "models" ? "models" : "lists",
    user: given.get("user") || null,
    items: given.get("user") || items === null ? null : items.split(",").filter(Boolean).map(unescaped),
    model: given.get("model") || null,
    k: Math.round(between(given.get("k"), 1, 100, DEFAULTS.k)),
    diversity: between(given.get("diversity"), 0, 1, 0),
    filter: given.get("filter") ?? "",
    seen: given.get("seen") === "1",
    compare: given.get("compare") || null,
    compareDiversity: between(given.get("compare_diversity"), 0, 1, 0),
    popular: given.get("popular") === "1",
  };
}

/** The address of a state. */
export function write(state) {
  const named = new URLSearchParams();
  if (state.view === "models") named.set("view", "models");
  if (state.user !== null) named.set("user", state.user);
  if (state.items !== null) named.set("items", state.items.map(escaped).join(","));
  if (state.model !== null) named.set("model", state.model);
  if (state.k !== DEFAULTS.k) named.set("k", state.k);
  if (state.diversity) named.set("diversity", state.diversity);
  if (state.filter) named.set("filter", state.filter);
  if (state.seen) named.set("seen", "1");
  if (state.compare !== null) named.set("compare", state.compare);
  if (state.compare !== null && state.compareDiversity) named.set("compare_diversity", state.compareDiversity);
  if (state.popular) named.set("popular", "1");
  const text = named.toString().replaceAll("%2C", ","); // commas are easier to read, and an escaped one is %252C
  return text ? `/?${text}` : "/";
}
