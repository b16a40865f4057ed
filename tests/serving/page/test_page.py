"""The page: every flow, in a browser, against the real server."""

from __future__ import annotations

import contextlib
import re
import shlex
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = sync_api.expect
expect.set_options(timeout=15_000)  # a loaded machine is no failure

MARKUP = "<img src=x onerror=alert(1)> & <b>bold</b>"
NOT_FOUND = "status of 404"
KEY = "k" * 20


def query(page: Any) -> dict[str, str]:
    """The parameters of the address."""
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query, keep_blank_values=True).items()}


def items(page: Any, n: int = 0) -> list[str]:
    """The ids of a list."""
    page.locator(f"#list-{n}[aria-busy=false] .entry").first.wait_for()
    found: list[str] = page.locator(f"#list-{n} .entry").evaluate_all("all => all.map(e => e.dataset.item)")
    return found


def asked(page: Any, body: dict[str, Any]) -> list[str]:
    """The ids of a list, asked without the page."""
    answer = page.request.post("/v1/recommend", data=body)
    assert answer.ok, answer.text()
    return [item["item"] for item in answer.json()["items"]]


def percent(probability: float) -> str:
    """A probability as the page shows it."""
    if probability < 0.0005 or probability > 0.9995:
        return "<\u00a00.1\u00a0%" if probability < 0.5 else ">\u00a099.9\u00a0%"
    return f"{100 * probability:.1f}\u00a0%"


def has_no_horizontal_scroll(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


# --- choosing -------------------------------------------------------------------------------------


def test_a_newcomer_sees_a_list_after_one_click(watched):
    page = watched.page
    page.goto("/")
    first = page.locator("#start-choices a").first
    user = first.inner_text()
    first.click()
    assert items(page) == asked(page, {"user": user, "k": 10})
    assert query(page) == {"user": user}
    expect(page.locator("#history h2")).to_have_text(f"History of user {user}")
    expect(page.locator("#history li")).not_to_have_count(0)
    expect(page.locator("#list-0 .because").first).to_contain_text("because of")
    expect(page.locator("#list-0 .head")).to_contain_text(re.compile(r"model (als|nbpo)\s*version [0-9a-f]{12}"))
    expect(page.locator("#list-0 .badge.source")).to_have_text("model")
    assert page.title() == f"User {user} – truelike"
    page.go_back()
    expect(page.locator("#start")).to_be_visible()
    assert page.locator("#user").input_value() == ""
    page.go_forward()
    assert items(page)


def test_the_keyboard_alone_searches_likes_and_opens_similar_items(watched):
    page = watched.page
    page.goto("/")
    page.locator("#start-choices a").first.wait_for()
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.locator("#user").focus()
    page.keyboard.type("12")
    options = page.locator("li[role=option]")
    expect(options.first).to_have_text("12")
    assert page.locator("#user").get_attribute("aria-expanded") == "true"
    page.keyboard.press("Escape")
    expect(options).to_have_count(0)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    assert page.locator("#user").get_attribute("aria-activedescendant") == "user-options-1"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    before = items(page)
    assert query(page) == {"user": "12"}

    title = page.locator("#list-0 .title").first
    title.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".entry")).to_have_count(10)
    expect(dialog.locator("h2")).to_be_focused()
    for _ in range(30):
        page.keyboard.press("Tab")
        assert page.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(title).to_be_focused()

    page.keyboard.press("Tab")
    expect(page.locator("#list-0 .like").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#notice")).to_contain_text("The list changed")
    expect(page.locator("#notice").get_by_role("button", name="Undo")).to_be_focused()
    assert before[0] not in items(page)
    page.keyboard.press("Enter")
    expect(page.locator("#notice")).to_contain_text("Took back")
    assert items(page) == before


def test_a_new_user_from_titles_and_pasted_ids(watched):
    page = watched.page
    page.goto("/")
    page.get_by_label("A new user, from items").check()
    expect(page.locator("#start")).to_contain_text("Popular ones")
    page.locator("#item").fill("no. 11")
    page.locator("li[role=option]").filter(has_text="Song no. 11").first.wait_for()
    page.keyboard.press("Enter")
    assert len(items(page)) == 10
    page.get_by_text("Paste a list of ids").click()
    page.locator("#paste").fill("20, 21\n22 nonsense")
    page.get_by_role("button", name="Add them").click()
    expect(page.locator("#history li")).to_have_count(5)
    given = query(page)["items"].split(",")
    assert given[1:] == ["20", "21", "22", "nonsense"]
    expect(page.locator("#history")).to_contain_text("Song no. 21")
    expect(page.locator("#history")).to_contain_text("not known to the model")
    expect(page.locator("#list-0 .badge.source")).to_have_text("given items")
    body = {"items": given, "k": 10}
    assert items(page) in [asked(page, {**body, "model": name}) for name in ("als", "nbpo")]
    page.locator("#history").get_by_role("button", name="Remove nonsense").click()
    expect(page.locator("#history li")).to_have_count(4)

    liked = items(page)[0]
    page.locator("#list-0 .like").first.click()
    expect(page.locator("#notice")).to_contain_text("Added")
    assert query(page)["items"].split(",")[-1] == liked
    assert liked not in items(page)


def test_a_shared_link_shows_the_same(watched):
    page = watched.page
    page.goto("/?user=5&model=nbpo&k=7&diversity=0.5&seen=1&filter=price%20%3C%2030&compare=als")
    expected = {
        "user": "5",
        "model": "nbpo",
        "k": 7,
        "diversity": 0.5,
        "exclude_seen": False,
        "filter": "price < 30",
    }
    assert items(page) == asked(page, expected)
    assert items(page, 1) == asked(page, {**expected, "model": "als", "diversity": 0})
    fields = {"#k": "7", "#model": "nbpo", "#diversity": "0.5", "#filter": "price < 30", "#compare": "als"}
    assert {name: page.locator(name).input_value() for name in fields} == fields
    assert page.locator("#seen").is_checked()


def test_back_goes_through_models_and_an_unknown_model_is_named(watched):
    page = watched.page
    page.goto("/?user=5&model=nowhere")
    expect(page.locator("#notice")).to_contain_text("There is no model nowhere.")
    page.locator("#model").select_option("als")
    expect(page.locator("#list-0 .head")).to_contain_text("model als")
    page.locator("#model").select_option("nbpo")
    expect(page.locator("#list-0 .head")).to_contain_text("model nbpo")
    page.go_back()
    assert items(page) == asked(page, {"user": "5", "model": "als"})
    assert page.locator("#model").input_value() == "als"


# --- lists ----------------------------------------------------------------------------------------


def test_more_and_the_options(watched):
    page = watched.page
    page.goto("/?user=7&model=als")
    first = items(page)
    page.get_by_role("button", name="More").click()
    expect(page.locator("#list-0 .entry")).to_have_count(20)
    assert items(page) == asked(page, {"user": "7", "model": "als", "k": 20})
    expect(page.locator("#list-0 .title").nth(10)).to_be_focused()
    ranks = page.locator("#list-0 .rank").all_inner_texts()
    assert [int(re.sub(r"\D", "", rank)) for rank in ranks] == list(range(1, 21))

    page.locator("#k").fill("5")
    page.keyboard.press("Enter")
    expect(page.locator("#list-0 .entry")).to_have_count(5)
    assert items(page) == first[:5]
    page.locator("#seen").check()
    expect(page).to_have_url(re.compile("seen=1"))
    assert items(page) == asked(page, {"user": "7", "model": "als", "k": 5, "exclude_seen": False})
    page.locator("#seen").uncheck()
    page.locator("#diversity").fill("0.8")
    expect(page).to_have_url(re.compile(r"diversity=0.8"))
    assert items(page) == asked(page, {"user": "7", "model": "als", "k": 5, "diversity": 0.8})


def test_a_filter_and_its_error(watched):
    watched.expect("status of 422")
    page = watched.page
    page.goto("/?user=7&model=als")
    before = items(page)
    expect(page.locator("#filter-hint")).to_contain_text("genre, price")
    page.locator("#filter").fill("color = red")
    page.keyboard.press("Enter")
    expect(page.locator("#filter-problem")).to_contain_text("color")
    expect(page.locator("#filter")).to_have_attribute("aria-invalid", "true")
    page.locator("#filter").fill("genre = Jazz and price < 20")
    page.keyboard.press("Enter")
    expect(page.locator("#filter-problem")).to_be_empty()
    found = items(page)
    assert found == asked(page, {"user": "7", "model": "als", "filter": "genre = Jazz and price < 20"})
    assert found != before
    page.locator("#filter").fill("price > 1000")
    page.keyboard.press("Enter")
    expect(page.locator("#list-0")).to_contain_text("No item is left to list.")


def test_similar_items_lead_on_and_back(watched):
    page = watched.page
    page.goto("/?user=9&model=als")
    start = items(page)[2]
    page.locator("#list-0 .title").nth(2).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("genre")
    similar = page.request.get(f"/v1/similar?item={start}&model=als").json()["items"]
    expect(dialog.locator(".entry")).to_have_count(10)
    expect(dialog.locator(".entry .title").first).to_contain_text(similar[0]["title"])
    dialog.locator(".entry .title").first.click()
    expect(dialog.locator("h2")).to_have_text(similar[0]["title"])
    dialog.get_by_role("button", name="Back to").click()
    expect(dialog.locator("h2")).not_to_have_text(similar[0]["title"])
    expect(dialog.get_by_role("link")).to_have_attribute("href", f"/?items={start}&model=als")
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def test_hidden_likes_where_the_model_can(watched):
    page = watched.page
    page.goto("/?user=9&model=als")
    items(page)
    expect(page.locator("#hidden-likes")).to_be_hidden()
    page.locator("#model").select_option("nbpo")
    section = page.locator("#hidden-likes")
    expect(section).to_be_visible()
    answer = page.request.get("/v1/hidden-likes?user=9&model=nbpo&k=10").json()
    expect(section).to_contain_text(answer["note"])
    assert section.locator("tbody tr").evaluate_all("all => all.map(e => e.dataset.item)") == [
        item["item"] for item in answer["items"]
    ]
    assert not answer["identified"]
    expect(section.locator(".badge")).to_have_text("ranking only")
    expect(section.locator("thead th")).to_have_text(["Rank", "Item"])  # no figure that is no probability
    assert "%" not in section.inner_text()
    assert page.locator("#list-0 .likely").count() == 0


def test_probabilities_of_a_model_that_knows_what_was_shown(informed):
    page = informed.page
    page.goto("/?user=9")
    listed = page.request.post("/v1/recommend", data={"user": "9"}).json()
    hidden = page.request.get("/v1/hidden-likes?user=9&k=10").json()
    assert (listed["evidence"], hidden["identified"]) == ("impressions", True)
    section = page.locator("#hidden-likes")
    expect(section).to_be_visible()
    expect(section.locator(".badge")).to_have_text("probabilities")
    expect(section).to_contain_text(hidden["note"])
    expect(section.locator("thead th")).to_have_text(["Rank", "Item", "Probability", "Flip probability"])
    expect(section.locator("tbody tr").first).to_contain_text(percent(hidden["items"][0]["posterior"]))
    expect(section.locator("dl")).to_contain_text("given that there was no interaction")
    likely = page.locator("#list-0 .likely")
    expect(likely).to_have_text([f"p(like) {percent(item['probability'])}" for item in listed["items"]])
    expect(page.locator("#list-0 .evidence")).to_contain_text("known from the impressions of the training data")
    assert has_no_horizontal_scroll(page)
    page.set_viewport_size({"width": 390, "height": 844})
    assert has_no_horizontal_scroll(page)
    page.get_by_role("link", name="Models").click()
    expect(page.locator(".card")).to_contain_text(hidden["note"])


def test_two_models_side_by_side(watched):
    page = watched.page
    page.goto("/?user=3&model=als")
    items(page)
    page.locator("#compare").select_option("nbpo")
    second = items(page, 1)
    first = items(page)
    assert second == asked(page, {"user": "3", "model": "nbpo"})
    both = len(set(first) & set(second))
    same = sum(a == b for a, b in zip(first, second, strict=True))
    expect(page.locator("#list-1 .summary")).to_have_text(
        f"{both} of 10 items are in both lists, {same} at the same place."
    )
    for rank, item in enumerate(second):
        text = page.locator(f"#list-1 [data-item='{item}'] .name").inner_text()
        if item not in first:
            assert "only here" in text
        elif first.index(item) != rank:
            moved = first.index(item) - rank
            assert f"{abs(moved)} {'up' if moved > 0 else 'down'}" in text
    assert page.locator("#list-0 .badge.only").count() == 10 - both
    page.locator("#list-1").get_by_role("button", name="More").click()
    expect(page.locator("#list-0 .entry")).to_have_count(20)
    expect(page.locator("#list-1 .entry")).to_have_count(20)
    page.locator("#compare").select_option("als")
    expect(page.locator("#list-1 .summary")).to_have_text("Both lists are the same.")
    page.locator("#compare-diversity").fill("0.9")
    expect(page.locator("#list-1 .summary")).to_contain_text("in both lists")
    page.locator("#compare").select_option("")
    expect(page.locator("#list-1")).to_be_hidden()


def test_a_like_changes_the_list_and_undo_brings_it_back(watched):
    page = watched.page
    assert page.request.get("/v1/models").json()["keeps_events"] is True
    page.goto("/?user=20&model=als")
    before = items(page)
    page.locator("#list-0 .like").nth(1).click()
    notice = page.locator("#notice")
    expect(notice).to_contain_text("Liked")
    after = items(page)
    new = len(set(after) - set(before))
    expect(notice).to_contain_text(f"The list changed: {new} new item")
    assert page.locator("#list-0 .badge.fresh").count() == new
    assert after == asked(page, {"user": "20", "model": "als"})
    expect(page.locator("#list-0 .head")).to_contain_text("history and new events")
    expect(page.locator("#list-0 .head")).to_contain_text("1 new event counted")
    event = page.locator("#history li").first
    expect(event).to_have_attribute("data-item", before[1])
    expect(event.locator(".badge")).to_have_text("like")
    page.reload()
    assert items(page) == after
    event.get_by_role("button", name="Undo").click()
    expect(notice).to_contain_text("Took back")
    assert items(page) == before
    expect(page.locator("#history .badge")).to_have_count(0)


def test_markup_in_titles_is_text(watched):
    page = watched.page
    page.goto("/?items=0")
    entry = page.locator("#list-0 .title").filter(has_text="<img")
    entry.wait_for()
    expect(entry).to_contain_text(MARKUP)
    entry.click()
    expect(page.get_by_role("dialog").locator("h2")).to_have_text(MARKUP)
    page.keyboard.press("Escape")
    page.locator("#list-0 .entry").filter(has_text="<img").locator(".like").click()
    expect(page.locator("#notice")).to_contain_text(MARKUP)
    expect(page.locator("#history")).to_contain_text(MARKUP)
    expect(page.locator("#list-0 .because").first).to_contain_text("because of")
    page.locator("#item").fill("<img")
    expect(page.locator("li[role=option]")).to_contain_text(MARKUP)
    page.goto("/?user=%3Cscript%3Ealert(1)%3C/script%3E")
    watched.expect(NOT_FOUND)
    expect(page.locator("#list-0")).to_contain_text("<script>alert(1)</script>")
    assert page.locator("main img, main script").count() == 0


# --- models ---------------------------------------------------------------------------------------


def test_the_cards_of_the_models(watched, locked):
    page = watched.page
    page.goto("/")
    page.get_by_role("link", name="Models").click()
    assert query(page) == {"view": "models"}
    card = page.locator("article").first
    expect(card.locator("h2")).to_have_text("als")
    expect(card).to_contain_text("IALS")
    expect(card).to_contain_text("test ndcg@20")
    expect(card.get_by_role("row", name="factors 8", exact=True)).to_be_visible()
    expect(card.get_by_role("row", name=re.compile(r"^users \d+"))).to_be_visible()
    curves = card.get_by_role("img")
    expect(curves).to_have_count(2)
    expect(curves.nth(1)).to_have_attribute(
        "aria-label", re.compile(r"ndcg@20 on validation by epoch: 0\.\d+ in epoch 1")
    )
    assert curves.first.locator("circle").count() == 4
    card.get_by_text("Values by epoch").click()
    expect(card.locator(".values tbody tr")).to_have_count(4)
    page.go_back()
    expect(page.locator("#start")).to_be_visible()

    def chosen(route: Any) -> None:
        answer = route.fetch().json()
        answer["models"][0]["choice"] = {
            "model": "IALS",
            "reason": "<i>best</i> of 5 on validation",
            "outlook": "",
        }
        answer["models"][0]["history"]["loss"][1] = None
        route.fulfill(json=answer)

    page.route("**/v1/models", chosen)
    page.goto("/?view=models")
    expect(card).to_contain_text("<i>best</i> of 5 on validation")
    expect(card.get_by_role("img").first.locator("circle")).to_have_count(3)

    page = locked.page
    locked.expect("status of 401")
    page.goto("/?view=models")
    page.locator("#key").fill(KEY)
    page.keyboard.press("Enter")
    expect(page.locator("article")).to_contain_text("This model is not trained in epochs.")


# --- errors ---------------------------------------------------------------------------------------


def test_an_unknown_user_gets_popular_items_and_then_a_history(watched):
    watched.expect(NOT_FOUND)
    page = watched.page
    page.goto("/")
    page.locator("#user").fill("zorro")
    page.keyboard.press("Enter")
    expect(page.locator("#list-0")).to_contain_text("Nothing is known of the user zorro")
    page.get_by_role("button", name="Show popular items").click()
    assert items(page) == asked(page, {"user": "zorro", "on_unknown": "popular"})
    expect(page.locator("#list-0 .head")).to_contain_text("nothing is known of this user")
    page.locator("#list-0 .like").first.click()
    expect(page.locator("#list-0 .badge.source")).to_have_text("history and new events")
    expect(page.locator("#history li")).to_have_count(1)
    page.locator("#notice").get_by_role("button", name="Undo").click()
    expect(page.locator("#list-0 .badge.source")).to_have_text("popular items")


def test_the_key_and_likes_that_are_not_kept(locked):
    locked.expect("status of 401")
    page = locked.page
    card = page.request.get("/v1/models", headers={"x-api-key": KEY}).json()
    assert card["keeps_events"] is False
    page.goto("/?user=8")
    panel = page.locator("#key-panel")
    expect(panel).to_be_visible()
    expect(page.locator("#key")).to_be_focused()
    page.locator("#key").fill("wrong")
    page.keyboard.press("Enter")
    expect(panel).to_contain_text("not the right one")
    page.locator("#key").fill(KEY)
    page.keyboard.press("Enter")
    before = items(page)
    expect(panel).to_be_hidden()
    expect(page.locator("#model-field")).to_be_hidden()
    page.reload()
    assert items(page) == before
    assert page.evaluate("Object.keys(localStorage).join()") == ""

    page.locator("#list-0 .like").first.click()
    expect(page.locator("#notice")).to_contain_text("not kept: the server was started without --events")
    expect(page.locator("#notice")).to_contain_text("The list changed")
    expect(page.locator("#history li").first).to_contain_text("not kept")
    expect(page.locator("#list-0 .badge.source")).to_have_text("history and likes, not kept")
    assert before[0] not in items(page)
    page.locator("#notice").get_by_role("button", name="Undo").click()
    expect(page.locator("#notice")).to_contain_text("Took back")
    assert items(page) == before


def test_the_server_goes_away_and_comes_back(locked, servers):
    locked.expect("status of 401")
    locked.expect("ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE")
    page, server = locked.page, servers[1]
    page.goto("/?user=8")
    page.locator("#key").fill(KEY)
    page.keyboard.press("Enter")
    before = items(page)
    server.stop()
    page.locator("#seen").check()
    banner = page.locator("#banner")
    expect(banner).to_contain_text("The server does not answer; trying again.")
    page.locator("#user").fill("1")
    page.keyboard.type("7")
    assert items_shown(page) == before  # what was there stays
    server.start()
    expect(banner).to_be_hidden(timeout=20_000)
    expect(page.locator("#list-0[aria-busy=false]")).to_be_visible()
    assert page.locator("#user").input_value() == "17"
    assert page.locator("#seen").is_checked()
    expect(page.locator("#list-0 .entry")).to_have_count(10)
    assert items(page) != before  # with seen items
    page.locator("#user").press("Enter")
    expect(page.locator("#history h2")).to_have_text("History of user 17")


def items_shown(page: Any) -> list[str]:
    """The ids that are shown, whether or not others are being loaded."""
    found: list[str] = page.locator("#list-0 .entry").evaluate_all("all => all.map(e => e.dataset.item)")
    return found


def test_a_busy_server_is_asked_again(watched):
    watched.expect("status of 503")
    page = watched.page
    refused = []

    def busy(route: Any) -> None:
        if len(refused) < 1:
            refused.append(route.request.url)
            error = {"request_id": "1", "error": {"code": "busy", "message": "try again soon"}}
            route.fulfill(status=503, json=error, headers={"retry-after": "0.7"})
        else:
            route.continue_()

    page.route("**/v1/recommend", busy)
    page.goto("/?user=8&model=als")
    expect(page.locator("#banner")).to_contain_text("The server is busy; trying again.")
    assert items(page) == asked(page, {"user": "8", "model": "als"})
    expect(page.locator("#banner")).to_be_hidden()
    assert refused

    def always_busy(route: Any) -> None:
        error = {"request_id": "1", "error": {"code": "busy", "message": "100 requests are being handled"}}
        route.fulfill(status=503, json=error, headers={"retry-after": "0"})

    page.unroute("**/v1/recommend")
    page.route("**/v1/recommend", always_busy)
    page.locator("#seen").check()
    expect(page.locator("#list-0")).to_contain_text("100 requests are being handled")
    page.unroute("**/v1/recommend")
    page.get_by_role("button", name="Try again").click()
    assert len(items(page)) == 10


def test_an_answer_that_is_overtaken_is_ignored(watched):
    page = watched.page
    held = []

    def hold(route: Any) -> None:
        if route.request.post_data_json["user"] == "1":
            held.append((route, route.fetch().json()))
        else:
            route.continue_()

    page.goto("/")
    page.route("**/v1/recommend", hold)
    page.locator("#user").fill("1")
    page.keyboard.press("Enter")
    expect(page.locator("#history h2")).to_have_text("History of user 1")
    expect(page.locator("#list-0")).to_have_attribute("aria-busy", "true")
    expect(page.locator("#list-0 .skeleton")).to_be_visible()
    page.locator("#user").fill("2")
    page.keyboard.press("Enter")
    before = items(page)
    (route, answer) = held[0]
    with contextlib.suppress(sync_api.Error):  # the request was aborted
        route.fulfill(json=answer)
    page.wait_for_load_state("networkidle")
    expect(page.locator("#history h2")).to_have_text("History of user 2")
    assert items(page) == before
    assert before in [asked(page, {"user": "2", "model": name}) for name in ("als", "nbpo")]


# --- look -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_theme_follows_the_system_until_it_is_chosen(watched, theme):
    page = watched.page
    other = {"light": "dark", "dark": "light"}[theme]
    ground = {"light": "rgb(247, 247, 245)", "dark": "rgb(17, 21, 27)"}
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    page.goto("/?user=1&model=als")
    items(page)
    expect(page.locator("body")).to_have_css("background-color", ground[theme])
    low = page.evaluate(CONTRAST)
    assert not low
    page.get_by_role("button", name="Dark theme").click()
    expect(page.locator("body")).to_have_css("background-color", ground[other])
    page.goto("/docs")
    expect(page.locator("body")).to_have_css("background-color", ground[other])
    expect(page.get_by_role("button", name="Dark theme")).to_have_attribute(
        "aria-pressed", str(other == "dark").lower()
    )


# every text against the nearest background behind it: WCAG AA
CONTRAST = """() => {
  const parse = (color) => (color.match(/[\\d.]+/g) ?? []).map(Number);
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = (color) => {
    const [r, g, b] = parse(color).slice(0, 3).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim();
    const element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility()) continue;
    if (element.closest('.visually-hidden, .skip, noscript, option')) continue;
    let behind = element;
    while (behind !== document.body && parse(getComputedStyle(behind).backgroundColor)[3] === 0) {
      behind = behind.parentElement;
    }
    const a = light(getComputedStyle(element).color);
    const b = light(getComputedStyle(behind).backgroundColor);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push([text, ratio]);
  }
  return low;
}"""


def test_a_phone_does_not_scroll_sideways(phone):
    page = phone.page
    addresses = (
        "/", "/?items=0", "/?user=1&model=nbpo", "/?user=1&compare=nbpo&model=als", "/?view=models", "/docs",
    )  # fmt: skip
    for address in addresses:
        page.goto(address)
        page.wait_for_load_state("networkidle")
        assert has_no_horizontal_scroll(page), address
    page.goto("/?items=0,1")
    items(page)
    page.locator("#options summary").click()
    assert has_no_horizontal_scroll(page)
    page.locator("#history .title").first.click()  # a title of 300 letters
    expect(page.get_by_role("dialog").locator(".entry")).to_have_count(10)
    assert has_no_horizontal_scroll(page)
    assert page.evaluate(
        "document.querySelector('dialog').scrollWidth <= document.querySelector('dialog').clientWidth"
    )


def test_landmarks_headings_and_labels(watched):
    page = watched.page
    page.goto("/?user=1&model=nbpo&compare=als")
    items(page)
    expect(page.locator("#hidden-likes")).to_be_visible()
    for role in ("banner", "main", "navigation", "search", "complementary", "contentinfo"):
        expect(page.get_by_role(role).first).to_be_attached()
    assert page.locator("h1:visible, h1.visually-hidden").count() >= 1
    nameless = page.evaluate("""() => [...document.querySelectorAll('button, input, select, textarea, a, summary')]
      .filter((e) => e.checkVisibility())
      .filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length))
      .map((e) => e.outerHTML)""")
    assert nameless == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    dangling = page.evaluate("""() => ['aria-labelledby', 'aria-describedby', 'aria-controls'].flatMap((name) =>
      [...document.querySelectorAll(`[${name}]`)].filter((e) => e.checkVisibility())
        .flatMap((e) => e.getAttribute(name).split(' ')).filter((id) => !document.getElementById(id)))""")
    assert dangling == []


# --- the page of the API --------------------------------------------------------------------------


def test_the_page_of_the_api_has_every_route_and_tries_it(watched):
    page = watched.page
    page.goto("/docs")
    routes = page.locator("section.route")
    document = page.request.get("/openapi.json").json()
    expect(routes).to_have_count(sum(map(len, document["paths"].values())))
    recommend = routes.filter(has=page.locator("#get-v1-recommend"))
    row = recommend.get_by_role("row", name="diversity")
    expect(row).to_contain_text("at least 0, at most 1; default 0")
    expect(row).to_contain_text("maximal marginal relevance")
    recommend.get_by_text("Statuses").click()
    expect(recommend.locator("dd").filter(has_text="The API key is missing or wrong.")).to_be_visible()
    recommend.get_by_text("Answer", exact=True).click()
    expect(recommend.get_by_role("row", name="contribution number")).to_be_visible()
    batch = routes.filter(has=page.locator("#post-v1-recommend-batch"))
    expect(batch.get_by_role("row", name="users required")).to_be_visible()
    recommend.get_by_text("Try it").click()
    recommend.get_by_label("k", exact=True).fill("3")
    recommend.get_by_role("button", name="Send").click()
    expect(recommend.get_by_role("status")).to_contain_text("Status 200")
    expect(recommend.locator(".output")).to_contain_text('"rank": 3')


def test_the_examples_work_when_copied(watched):
    """Each line of curl is parsed as the shell would, and sent."""
    page = watched.page
    page.goto("/docs")
    page.locator("section.route").first.wait_for()
    for text in page.locator(".example code").all_inner_texts():
        words = shlex.split(text.replace("\\\n", " "))
        assert words[0] == "curl"
        address = words[-1]
        if "/admin/" in address:
            assert words[1:3] == ["-X", "POST"]
            continue
        if "-d" in words:
            kind = words[words.index("-H") + 1].split(": ")
            answer = page.request.post(address, data=words[words.index("-d") + 1], headers=dict([kind]))
        else:
            answer = page.request.get(address)
        assert answer.ok or "/hidden-likes" in address, (text, answer.text())
