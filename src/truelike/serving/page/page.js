// The page for people: who is asked for, what is loaded, and what the buttons do.

import { DEFAULTS, read, write } from "./address.js";
import { ApiError, OfflineError, ask, connection, isAborted, latest, tryNow, useKey } from "./api.js";
import { cards, trainedOn } from "./cards.js";
import { combobox } from "./combobox.js";
import { announce, byId, count, el, named, number } from "./dom.js";
import { differences, problem, showHidden, showHistory, showList, showSimilar } from "./lists.js";

const REASONS = 2; // interactions that are named for each item
const PAST = matchMedia("(min-width: 60rem)").matches ? 50 : 15; // interactions of a history that are shown at first
const MOST_ITEMS = 1_000; // of a new user; and of a list
const MOST_DIVERSE = 500; // items of a list with diversity
const MOST_LOOKED_UP = 100; // pasted ids whose titles are looked up
const ACTIVE = 8; // users or items that are offered at first

let state = read(location.search);
let models = null; // the cards; null: not loaded yet
let keepsEvents = true;
let lists = [null, null];
let past = null; // the history that is shown
let pastLimit = PAST;
let afterChange = null; // what is said once the list of a change has come
let shownUser = null; // the user whose id was written into the field
let similarTo = null; // what the dialog shows
const unkept = new Map(); // likes that the server did not keep, by user: [{item, title}]
const titles = new Map(); // of items that were seen on this page
const lastChosen = { user: null, items: [] };

const card = (name) => models.find((model) => model.name === name);
const isChosen = () => state.user !== null || state.items?.length > 0;
const whose = () => (state.user === null ? "new user" : `user ${state.user}`);
const remember = (items) => items.forEach((item) => item.title && titles.set(item.item, item.title));
const myUnkept = () => (state.user === null ? [] : (unkept.get(state.user) ?? []));

// --- the address ----------------------------------------------------------------------------------

/** Change the state, and show it. */
function go(change, { replace = false } = {}) {
  state = { ...state, ...change };
  history[replace ? "replaceState" : "pushState"](null, "", write(state));
  show();
}

addEventListener("popstate", () => {
  state = read(location.search);
  say(null);
  show();
});

for (const link of document.querySelectorAll("a[data-view]")) {
  link.addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    say(null);
    if (link.classList.contains("brand")) go({ ...DEFAULTS });
    else go({ view: link.dataset.view });
    byId("main").focus();
  });
}

// --- start ----------------------------------------------------------------------------------------

/** Load the cards, then show the state. `keep`: with as many items as are shown now. */
async function start({ keep = false } = {}) {
  try {
    const answer = await ask("/v1/models", { signal: latest("models") });
    models = answer.models;
    keepsEvents = answer.keeps_events;
  } catch (error) {
    if (!isAborted(error) && error instanceof ApiError && error.status !== 401) {
      banner(capital(error.message), { label: "Try again", do: () => start() });
    }
    return;
  }
  banner(null);
  byId("key-panel").hidden = true;
  byId("library").textContent = `truelike ${models[0].library_version}`;
  fillModels();
  show({ keep });
}

/** Show what the state says. */
function show({ keep = false } = {}) {
  if (models === null || !byId("key-panel").hidden) return;
  for (const name of ["model", "compare"]) {
    if (state[name] === null || card(state[name])) continue;
    say(`There is no model ${state[name]}.`);
    state = { ...state, [name]: null };
  }
  const isModels = state.view === "models";
  byId("models-view").hidden = !isModels;
  byId("lists-view").hidden = isModels;
  for (const link of document.querySelectorAll("nav a[data-view]")) {
    if (link.dataset.view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (isModels) {
    document.title = "Models – truelike";
    showModels();
    return;
  }
  if (state.user !== null) lastChosen.user = state.user;
  if (state.items !== null) lastChosen.items = state.items;
  fillForm();
  byId("start").hidden = isChosen();
  byId("result").hidden = !isChosen();
  if (isChosen()) {
    document.title = `${capital(whose())} – truelike`;
    load({ keep });
  } else {
    document.title = "truelike";
    lists = [null, null];
    past = null;
    showStart();
  }
}

async function showModels() {
  byId("cards").replaceChildren(...cards(models));
  try {
    const answer = await ask("/v1/models", { signal: latest("models") });
    const isNew = answer.models.some((model, n) => model.version !== models[n]?.version);
    ({ models } = answer);
    if (isNew) {
      fillModels();
      byId("cards").replaceChildren(...cards(models));
    }
  } catch {
    // the old cards stay; the banner says what is wrong
  }
}

/** Nothing is chosen: offer some users or items. */
async function showStart() {
  const isNew = state.items !== null;
  byId("start-heading").textContent = isNew ? "Items of a new user" : "Whose list?";
  byId("start-text").textContent = isNew
    ? "Add the items that a new user interacted with. Popular ones to start with:"
    : "Type a user id, or take one of these:";
  byId("start-data").textContent = trainedOn(models);
  const choices = byId("start-choices");
  try {
    const query = { limit: ACTIVE, model: state.model };
    const answer = await ask(isNew ? "/v1/items" : "/v1/users", { query, signal: latest("start") });
    if (isNew) remember(answer.items);
    const offers = isNew
      ? answer.items.map((item) => [named(item), { user: null, items: [...(state.items ?? []), item.item] }])
      : answer.users.map((user) => [user, { user, items: null }]);
    choices.replaceChildren(
      ...offers.map(([label, change]) => {
        const choose = (event) => {
          if (event.metaKey || event.ctrlKey || event.shiftKey) return;
          event.preventDefault();
          go(change);
        };
        return el("li", {}, el("a", { class: "choice", href: write({ ...state, ...change }), onclick: choose }, label));
      }),
    );
  } catch (error) {
    if (!isAborted(error)) choices.replaceChildren();
  }
}

// --- the form -------------------------------------------------------------------------------------

function fillModels() {
  const several = models.length > 1;
  const options = models.map((model) => el("option", { value: model.name }, `${model.name} (${model.class_name})`));
  byId("model").replaceChildren(...(several ? [el("option", { value: "" }, "by share (A/B)")] : []), ...options);
  byId("model-field").hidden = !several;
  byId("compare").replaceChildren(
    el("option", { value: "" }, "nothing"),
    ...models.map((model) => el("option", { value: model.name }, several ? model.name : "the same, other options")),
  );
  const attributes = Object.keys(Object.assign({}, ...models.map((model) => model.filters)));
  byId("filter-field").hidden = !attributes.length;
  byId("filter-hint").textContent = `Attributes: ${attributes.join(", ")}.`;
  if (attributes.length) addExample();
}

/** An example of a filter, from the most popular item. */
async function addExample() {
  const answer = await ask("/v1/items", { query: { limit: 1 } }).catch(() => ({ items: [] }));
  const [pair] = Object.entries(answer.items[0]?.attributes ?? {});
  if (!pair) return;
  const [name, value] = pair;
  const quote = (text) => `"${text}"`;
  const example = typeof value === "number" ? `${name} <= ${value}`
    : Array.isArray(value) ? `${name} contains ${quote(value[0])}`
    : `${name} = ${typeof value === "string" ? quote(value) : value}`;
  byId("filter-hint").textContent += ` For example: ${example}`;
}

function fillForm() {
  const isNew = state.items !== null;
  document.querySelector(`input[name=mode][value=${isNew ? "items" : "user"}]`).checked = true;
  byId("user-search").hidden = isNew;
  byId("item-search").hidden = !isNew;
  const values = {
    k: state.k, model: state.model ?? (models.length > 1 ? "" : models[0].name), diversity: state.diversity,
    filter: state.filter, compare: state.compare ?? "", "compare-diversity": state.compareDiversity,
  };
  for (const [id, value] of Object.entries(values)) {
    if (document.activeElement !== byId(id)) byId(id).value = value;
  }
  if (state.user !== shownUser) byId("user").value = state.user ?? ""; // what is being typed stays
  shownUser = state.user;
  byId("seen").checked = state.seen;
  byId("diversity-value").value = state.diversity;
  byId("compare-diversity-value").value = state.compareDiversity;
  byId("compare-diversity-field").hidden = state.compare === null;
}

const filterProblem = (text) => {
  byId("filter-problem").textContent = text;
  if (text) byId("filter").setAttribute("aria-invalid", "true");
  else byId("filter").removeAttribute("aria-invalid");
};

function wireForm() {
  for (const radio of document.querySelectorAll("input[name=mode]")) {
    radio.addEventListener("change", () => {
      say(null);
      if (radio.value === "items") go({ user: null, items: lastChosen.items });
      else go({ user: lastChosen.user, items: null });
    });
  }
  const findUsers = async (text, signal) => {
    const answer = await ask("/v1/users", { query: { query: text, limit: 8, model: state.model }, signal });
    return answer.users.map((user) => ({ value: user, label: user }));
  };
  const chooseUser = ({ value }) => {
    say(null);
    pastLimit = PAST;
    go({ user: value, items: null, popular: false });
  };
  combobox(byId("user"), findUsers, chooseUser, { free: true, noun: "user" });

  const findItems = async (text, signal) => {
    const answer = await ask("/v1/items", { query: { query: text, limit: 8, model: state.model }, signal });
    remember(answer.items);
    return answer.items.map((item) => ({ value: item.item, label: named(item), detail: item.title ? item.item : "" }));
  };
  const chooseItem = ({ value }) => {
    byId("item").value = "";
    addItems([value]);
  };
  combobox(byId("item"), findItems, chooseItem, { noun: "item" });
  byId("paste-form").addEventListener("submit", (event) => {
    event.preventDefault();
    addItems(byId("paste").value.split(/[\s,;]+/).filter(Boolean));
    byId("paste").value = "";
  });

  const change = (id, read) => byId(id).addEventListener("change", () => go(read(byId(id)), { replace: true }));
  for (const id of ["model", "compare"]) {
    byId(id).addEventListener("change", () => go({ [id]: byId(id).value || null }));
  }
  change("seen", (field) => ({ seen: field.checked }));
  change("filter", (field) => ({ filter: field.value.trim() }));
  change("k", (field) => {
    const k = Math.min(100, Math.max(1, Math.round(Number(field.value)) || DEFAULTS.k));
    field.value = k;
    return { k };
  });
  for (const [id, name] of [["diversity", "diversity"], ["compare-diversity", "compareDiversity"]]) {
    byId(id).addEventListener("input", () => {
      byId(`${id}-value`).value = byId(id).value;
    });
    change(id, (field) => ({ [name]: Number(field.value) }));
  }
  byId("options-form").addEventListener("submit", (event) => {
    event.preventDefault();
    document.activeElement?.dispatchEvent(new Event("change"));
  });
  byId("options").open = matchMedia("(min-width: 60rem)").matches;
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    useKey(byId("key").value.trim());
    byId("key-problem").textContent = "";
    start();
  });
}

function addItems(ids) {
  const before = state.items ?? [];
  const items = [...new Set([...before, ...ids])].slice(0, MOST_ITEMS);
  if (items.length === before.length) return;
  announce(`${count(items.length - before.length, "item")} added`);
  go({ user: null, items });
}

// --- lists ----------------------------------------------------------------------------------------

/** The body of a request for a list. */
function request(n, offset, k) {
  const body = {
    k, offset, because: REASONS, exclude_seen: !state.seen,
    diversity: n ? state.compareDiversity : state.diversity,
    model: n ? state.compare : state.model,
  };
  if (state.filter && !byId("filter-field").hidden) body.filter = state.filter;
  if (state.user !== null) body.user = state.user;
  if (state.items !== null) body.items = state.items;
  if (state.popular) body.on_unknown = "popular";
  if (myUnkept().length && past?.user === state.user) {
    const known = past.items.map((item) => item.item);
    body.items = [...new Set([...myUnkept().map((item) => item.item), ...known])].slice(0, MOST_ITEMS);
  }
  return body;
}

/** Load everything that is shown of a user. `keep`: as many items as are shown now. */
async function load({ keep = false } = {}) {
  const who = JSON.stringify([state.user, state.items]);
  const isOther = lists[0]?.who !== who;
  const wanted = lists.map((list) => Math.min(MOST_ITEMS, Math.max(state.k, keep && list ? list.items.length : 0)));
  lists = lists.map((list, n) => {
    if (n && state.compare === null) return null;
    const kept = isOther ? null : list;
    return { items: [], ...kept, n, who, error: null, loading: true, wanted: wanted[n] };
  });
  if (isOther) {
    past = null;
    showHidden(byId("hidden-likes"), null, {});
  }
  latest("more-0");
  latest("more-1");
  filterProblem("");
  draw();
  const history = loadHistory();
  if (myUnkept().length) await history;
  if (lists[0]?.who !== who) return;
  await Promise.all([history, ...lists.filter(Boolean).map((list) => loadList(list))]);
}

async function loadList(list) {
  const { n, wanted } = list;
  const signal = latest(`list-${n}`);
  try {
    const answer = await ask("/v1/recommend", { body: request(n, 0, wanted), signal });
    remember(answer.items);
    const old = new Set(list.items.map((item) => item.item));
    const fresh = answer.items.map((item) => item.item).filter((id) => !old.has(id));
    list.fresh = new Set(n === 0 && afterChange ? fresh : []);
    Object.assign(list, { answer, items: answer.items, loading: false });
    list.ended = isEnd(list, answer.items.length, wanted);
    draw();
    if (n === 0) {
      if (afterChange) sayChange(list);
      else announce(`${count(list.items.length, "item")} for ${whose()}`);
      loadHidden(answer);
    }
  } catch (error) {
    failed(list, error);
  }
}

const isEnd = (list, got, wanted) => {
  const diversity = list.n ? state.compareDiversity : state.diversity;
  const most = diversity ? MOST_DIVERSE : 10_000;
  return got < wanted || list.items.length + state.k > most;
};

/** The next items of a list; of both lists, where there are two. */
async function more(n) {
  const list = lists[n];
  if (list.loading) return;
  const first = list.items.length;
  await Promise.all(lists.filter(Boolean).map((each) => moreOf(each)));
  const added = lists[n].items.length - first;
  announce(`${count(added, "more item", "more items")}`);
  byId(`list-${n}`).querySelectorAll(".entry .title")[first]?.focus();
}

async function moreOf(list) {
  if (list.ended || list.loading) return;
  list.loading = true;
  draw();
  try {
    const body = { ...request(list.n, list.items.length, state.k), model: list.answer.model };
    const answer = await ask("/v1/recommend", { body, signal: latest(`more-${list.n}`) });
    if (answer.version !== list.answer.version) {
      await load({ keep: true }); // the model was replaced meanwhile
      return;
    }
    remember(answer.items);
    list.items = [...list.items, ...answer.items];
    list.ended = isEnd(list, answer.items.length, state.k);
    list.loading = false;
    draw();
  } catch (error) {
    failed(list, error);
  }
}

/** Show why there is no list. What was shown stays if the server is away. */
function failed(list, error) {
  if (isAborted(error)) return;
  list.loading = error instanceof OfflineError && !list.answer;
  if (!(error instanceof ApiError) || error.status === 401) {
    if (!(error instanceof OfflineError) && !(error instanceof ApiError)) throw error;
    draw();
    return;
  }
  list.answer = null;
  list.items = [];
  if (error.code === "filter") {
    filterProblem(error.message);
    byId("options").open = true;
    list.error = problem("The filter cannot be used: see the message at the filter.");
  } else if (error.status === 404 && error.code === "unknown" && !state.popular) {
    const text = state.user === null
      ? "The model knows none of these items."
      : `Nothing is known of the user ${state.user}: not in the training data, and no events.`;
    list.error = problem(text, { label: "Show popular items", do: () => go({ popular: true }) });
  } else {
    list.error = problem(capital(error.message), { label: "Try again", do: () => load() });
  }
  if (list.n === 0) showHidden(byId("hidden-likes"), null, {});
  draw();
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

async function loadHistory() {
  if (state.items !== null) {
    past = { user: null, items: titled(state.items), total: state.items.length };
    draw();
    lookUp(state.items.filter((item) => !titles.has(item)).slice(0, MOST_LOOKED_UP));
    return;
  }
  const { user } = state;
  const limit = myUnkept().length ? MOST_ITEMS : pastLimit;
  try {
    const answer = await ask("/v1/history", { query: { user, limit, model: state.model }, signal: latest("history") });
    remember(answer.items);
    past = answer;
  } catch (error) {
    if (isAborted(error) || error instanceof OfflineError) return;
    const isExpected = error.status === 404 || error.status === 401;
    past = { user, items: [], total: 0, known: false, error: isExpected ? null : error.message };
  }
  draw();
}

const titled = (ids) => ids.map((item) => ({ item, title: titles.get(item) }));

/** Look up the titles of items of which only ids were given. */
async function lookUp(ids) {
  const signal = latest("titles");
  const waiting = [...ids];
  const one = async () => {
    for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
      const answer = await ask("/v1/items", { query: { query: id.slice(0, 200), limit: 1, model: state.model }, signal });
      const found = answer.items.find((item) => item.item === id);
      titles.set(id, found ? found.title : undefined);
      if (!found) unknown.add(id);
    }
  };
  try {
    await Promise.all([one(), one(), one()]);
  } catch {
    return; // titles are a convenience
  }
  if (ids.length && state.items !== null) {
    past.items = titled(state.items);
    draw();
  }
}
const unknown = new Set(); // given items that the model does not know

async function loadHidden(answer) {
  const section = byId("hidden-likes");
  const can = state.items === null && card(answer.model)?.can.includes("hidden_likes") && answer.source !== "popular";
  if (!can) {
    latest("hidden");
    showHidden(section, null, {});
    return;
  }
  try {
    const query = { user: state.user, k: state.k, model: answer.model, filter: request(0, 0, 1).filter };
    const found = await ask("/v1/hidden-likes", { query, signal: latest("hidden") });
    remember(found.items);
    showHidden(section, found, { open: (item) => openSimilar(item, found.model) });
  } catch (error) {
    if (!isAborted(error) && !(error instanceof OfflineError)) showHidden(section, null, {});
  }
}

/** Draw the lists and the history as they are now. */
function draw() {
  const [first, second] = lists;
  if (first === null) return;
  const liked = [...(past?.items ?? []).filter((item) => item.event || state.items !== null), ...myUnkept()];
  const comparable = second?.answer && first.answer && !first.loading && !second.loading;
  lists.forEach((list, n) => {
    const section = byId(`list-${n}`);
    section.hidden = list === null;
    if (list === null) return;
    const other = lists[1 - n];
    const { marks, summary } = comparable ? differences(list.items, other.items) : {};
    const onlyMarks = marks && n === 0 ? new Map([...marks].filter(([, mark]) => mark[1] === "only")) : marks;
    const diversity = n ? state.compareDiversity : state.diversity;
    const diverse = diversity ? `, diversity ${diversity}` : "";
    const shown = {
      ...list,
      heading: second ? `${n ? "Second" : "First"} list${diverse}` : "Recommendations",
      marks: onlyMarks,
      summary: n ? summary : null,
      evidence: list.answer?.evidence ? card(list.answer.model)?.probabilities : null,
      foldedIn: state.items !== null ? "items" : myUnkept().length ? "unkept" : "fold_in",
      liked: new Set(liked.map((item) => item.item)),
    };
    showList(section, shown, {
      like, undo, more: () => more(n), open: (item) => openSimilar(item, list.answer?.model ?? null),
    });
  });
  byId("columns").classList.toggle("compared", second !== null);
  drawHistory();
}

function drawHistory() {
  const isNew = state.items !== null;
  const added = myUnkept().map((item) => ({ ...item, event: "like, not kept" }));
  const items = past && [...added, ...past.items.filter((item) => !added.some((each) => each.item === item.item))];
  const shown = items?.slice(0, Math.max(pastLimit, added.length)).map((item) =>
    ({ ...item, unknown: isNew && unknown.has(item.item) }));
  showHistory(
    byId("history"),
    {
      heading: isNew ? "Items of the new user" : `History of user ${state.user}`,
      loading: past === null,
      items: shown,
      total: past ? (past.total ?? 0) + added.length : 0,
      error: past?.error ? problem(capital(past.error)) : null,
      note: el("span", {}, isNew ? count(items?.length ?? 0, "item") : historyNote(added.length)),
      nothing: isNew ? "No items yet." : "No interactions.",
      removable: (item) => (isNew ? "Remove" : item.event ? "Undo" : null),
    },
    {
      remove: undo,
      open: (item) => openSimilar(item, lists[0]?.answer?.model ?? null),
      all: () => {
        pastLimit = pastLimit === PAST ? 250 : MOST_ITEMS;
        loadHistory();
      },
    },
  );
}

function historyNote(added) {
  if (!past?.known && !past?.items.length && !added) return "Not in the training data, no events.";
  const text = count(past.total, "interaction");
  if (!added) return text;
  const isCut = past.total + added > MOST_ITEMS;
  const most = isCut ? ` The list is computed from ${number(MOST_ITEMS)} of them.` : "";
  return `${text}, and ${count(added, "like")} that the server does not keep.${most}`;
}

// --- likes ----------------------------------------------------------------------------------------

async function like(item) {
  const undoIt = { label: "Undo", do: () => undo(item) };
  if (state.items !== null) {
    changing(`Added ${quoted(item)}.`, undoIt);
    history.pushState(null, "", write({ ...state, items: [...state.items, item.item] }));
    state = read(location.search);
    relabel();
  } else if (await sent(item, "like")) {
    changing(`Liked ${quoted(item)}.`, undoIt);
  } else {
    if (keepsEvents) return;
    unkept.set(state.user, [{ item: item.item, title: item.title }, ...myUnkept()]);
    changing(`Liked ${quoted(item)}, not kept: the server was started without --events.`, undoIt);
  }
  await load({ keep: true });
}

async function undo(item) {
  const text = `Took back ${quoted(item)}.`;
  if (state.items !== null) {
    changing(text);
    const items = state.items.filter((id) => id !== item.item);
    history.pushState(null, "", write({ ...state, items }));
    state = read(location.search);
    if (!items.length) {
      say(null);
      show();
      return;
    }
    relabel();
  } else if (myUnkept().some((each) => each.item === item.item)) {
    unkept.set(state.user, myUnkept().filter((each) => each.item !== item.item));
    changing(text);
  } else if (await sent(item, "remove")) {
    changing(text);
  } else return;
  await load({ keep: true });
}

/** The list of a new user stays in place while it changes by an item. */
const relabel = () => lists.filter(Boolean).forEach((list) => {
  list.who = JSON.stringify([state.user, state.items]);
});

const quoted = (item) => `\u201c${named({ ...item, title: item.title ?? titles.get(item.item) })}\u201d`;

/** Send an event; whether it is kept. */
async function sent(item, type) {
  if (!keepsEvents) return false;
  const event = { user: state.user, item: item.item, type };
  if (lists[0]?.answer && type === "like") event.request_id = lists[0].answer.request_id;
  try {
    await ask("/v1/events", { body: { events: [event] } });
    return true;
  } catch (error) {
    if (error.status === 409) keepsEvents = false;
    else if (error.status !== 401) say(`Not sent: ${error.message}.`);
    return false;
  }
}

const changing = (text, action = null) => {
  afterChange = { text, action };
};

/** Say how a list changed after a like. */
function sayChange(list) {
  const n = list.fresh.size;
  const { text, action } = afterChange;
  afterChange = null;
  say(`${text} ${n ? `The list changed: ${count(n, "new item")}.` : "The list has the same items."}`, action);
}

/** Say something above the lists, with a button. */
function say(text, action = null) {
  const notice = byId("notice");
  const hadFocus = document.activeElement === document.body || notice.contains(document.activeElement);
  notice.hidden = text === null;
  if (text === null) {
    notice.replaceChildren();
    afterChange = null;
    return;
  }
  const button = action && el("button", { type: "button", class: "quiet", onclick: action.do }, action.label);
  const close = el("button", { type: "button", class: "quiet", onclick: () => say(null) }, "Close");
  notice.replaceChildren(el("p", {}, text), ...(button ? [button] : []), close);
  announce(text);
  if (hadFocus) (button ?? close).focus(); // the button that was pressed is gone with its item
}

// --- similar items --------------------------------------------------------------------------------

function openSimilar(item, model, trail = []) {
  similarTo = { item: { ...item, title: item.title ?? titles.get(item.item) }, model, trail };
  drawSimilar();
  const dialog = byId("similar");
  if (!dialog.open) dialog.showModal();
  byId("similar-heading").focus();
  loadSimilar(similarTo);
}

async function loadSimilar(shown) {
  const { item, model } = shown;
  const signal = latest("similar");
  try {
    const [answer, found] = await Promise.all([
      ask("/v1/similar", { query: { item: item.item, k: 10, model }, signal }),
      ask("/v1/items", { query: { query: item.item.slice(0, 200), limit: 1, model }, signal })
        .catch(() => ({ items: [] })),
    ]);
    remember(answer.items);
    shown.answer = answer;
    shown.attributes = found.items.find((each) => each.item === item.item)?.attributes;
  } catch (error) {
    if (isAborted(error)) return;
    shown.error = problem(capital(error.message));
  }
  if (similarTo === shown) drawSimilar();
}

const drawSimilar = () =>
  showSimilar(byId("similar"), similarTo, {
    open: (item) => openSimilar(item, similarTo.model, [...similarTo.trail, similarTo.item]),
    back: () => openSimilar(similarTo.trail.at(-1), similarTo.model, similarTo.trail.slice(0, -1)),
    close: () => byId("similar").close(),
    address: (item) => write({ ...DEFAULTS, model: state.model, items: [item.item] }),
  });

byId("similar").addEventListener("close", () => {
  latest("similar");
  const key = `open ${similarTo.trail[0]?.item ?? similarTo.item.item}`;
  if (document.activeElement === document.body) document.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
});
byId("similar").addEventListener("click", (event) => {
  if (event.target === byId("similar")) byId("similar").close(); // beside the dialog
});

// --- the server -----------------------------------------------------------------------------------

function banner(text, action = null) {
  const place = byId("banner");
  place.hidden = text === null;
  place.replaceChildren();
  if (text === null) return;
  place.append(el("p", {}, text));
  if (action) place.append(el("button", { type: "button", onclick: action.do }, action.label));
}

let isAway = false;
connection.addEventListener("offline", () => {
  if (!isAway) banner("The server does not answer; trying again.", { label: "Try now", do: tryNow });
  isAway = true;
});
connection.addEventListener("online", () => {
  isAway = false;
  banner(null);
  start({ keep: true });
  if (byId("similar").open) openSimilar(similarTo.item, similarTo.model, similarTo.trail);
});
connection.addEventListener("busy", () => isAway || banner("The server is busy; trying again."));
connection.addEventListener("free", () => isAway || banner(null));
connection.addEventListener("key", ({ detail }) => {
  byId("lists-view").hidden = true;
  byId("models-view").hidden = true;
  byId("key-panel").hidden = false;
  byId("key-problem").textContent = detail ? `${capital(detail)}.` : "";
  byId("key").focus();
});

wireForm();
start();
