//! The page of a running instance: its files, its figures, and how a real browser shows them.

mod door;

use std::net::SocketAddr;
use std::path::Path;

use door::{Behind, Door};
use serde_json::{Value, json};
use tempfile::TempDir;
use warmlane_system_tests::browser::{Browser, PROGRAMS};
use warmlane_system_tests::turn::{self, BesideOthers};
use warmlane_testkit::requirements;

use super::forwarder::{
    Forwarder, directory, directory_beside_others, graphs, layout, stats, sum, time_stages, wait_until,
};
use super::metrics::{forwarder, get, token_file};

fn served(address: SocketAddr) -> Value {
    json_at(address, "/stats.json")
}

fn json_at(address: SocketAddr, path: &str) -> Value {
    let (head, body) = get(address, path, "");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("application/json"), "{head}");
    serde_json::from_str(&body).expect("JSON")
}

/// All values of sets that stand still when no packets come: what lanes count of their own goes on.
fn at_rest(stats: &Value) -> Vec<&Value> {
    stats["values"].as_array().expect("a list").iter().filter(|value| value["set"] != "lane").collect()
}

#[test]
fn the_page_and_what_stats_print_are_beside_the_metrics() {
    let (_turn, directory) = directory_beside_others();
    let (forwarder, address) = forwarder(directory.path(), &[]);
    let sent = forwarder.send(1_000);
    wait_until("all are forwarded", || {
        sum(&stats(&forwarder.socket), "output", "sent", ("output", "east")) == sent
    });
    let (mut asked, mut now) = (Value::Null, Value::Null);
    wait_until("both say the same", || {
        (asked, now) = (stats(&forwarder.socket), served(address));
        at_rest(&asked) == at_rest(&now)
    });
    assert_eq!(sum(&now, "queue", "packets", ("direction", "receive")), sent);
    for part in ["descriptions", "reasons"] {
        assert_eq!(now[part], asked[part]);
    }
    assert_eq!(now["values"].as_array().map(Vec::len), asked["values"].as_array().map(Vec::len));
    let age = |stats: &Value| stats["age_ns"].as_u64().expect("a number");
    assert!(age(&now) > 0 && age(&now) < age(&served(address)), "{now}");

    assert_eq!(json_at(address, "/graph.json"), json!(graphs(&forwarder.socket)));
    assert_eq!(json_at(address, "/layout.json"), json!(layout(&forwarder.socket)));
    let (head, page) = get(address, "/", "");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("Content-Security-Policy: "), "{head}");
    // Every file that the page names is there, and all are from here.
    let is_file = |word: &&str| matches!(word.rsplit_once('.'), Some((_, "js" | "css")));
    let names = page.split(['"', '(']).filter(is_file);
    let names: Vec<&str> = names.collect();
    assert_eq!(names, ["page.css", "page.js"]);
    for name in names {
        assert!(get(address, &format!("/{name}"), "").0.starts_with("HTTP/1.1 200 "), "{name}");
    }
    forwarder.finish();
}

/// Asks the page until this is so in it.
#[track_caller]
fn wait_for(browser: &mut Browser, expression: &str) {
    wait_until(expression, || browser.evaluate(expression) == true);
}

/// What a row of a section's table says, as an expression.
fn row(section: &str, name: &str) -> String {
    format!(
        "[...document.querySelectorAll('#{section} tbody tr')].map(({{ cells }}) => [...cells].map((cell) => cell.textContent))
             .find((cells) => cells[0] === '{name}')"
    )
}

/// What the unfolded table of all values says, without commas: labels, what is counted, how much.
fn shown(browser: &mut Browser) -> Value {
    browser.evaluate(
        "[...document.querySelectorAll('#all tbody tr')].map(({ cells }) => [0, 1, 2].map((column) => cells[column].textContent))
             .map(([labels, words, count]) => [labels, words, count.replaceAll(',', '')])
             .filter(([, words]) => !words.startsWith('lane '))",
    )
}

/// What it should say.
fn expected(stats: &Value) -> Value {
    let row = |value: &&Value| {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let labels = value["labels"].as_object().expect("an object").iter();
        let labels: Vec<String> = labels.map(|(name, label)| format!("{name}={}", text(label))).collect();
        let words = ["set", "name", "reason"].iter().filter_map(|part| value[part].as_str());
        let words: Vec<&str> = words.collect();
        json!([labels.join(" "), words.join(" "), value["value"].to_string()])
    };
    at_rest(stats).iter().map(row).collect()
}

fn browser(directory: &Path, address: SocketAddr) -> Browser {
    let mut browser = Browser::start(directory);
    browser.go(&format!("http://{address}/"));
    browser
}

/// A forwarder and its page in a browser, with what must be kept meanwhile; `None` if there is no browser.
fn forwarder_in_browser() -> Option<((TempDir, BesideOthers), Forwarder, SocketAddr, Browser)> {
    if !requirements::programs(&PROGRAMS) {
        return None;
    }
    let kept = (directory(), turn::beside_others());
    let (forwarder, address) = forwarder(kept.0.path(), &[]);
    let browser = browser(kept.0.path(), address);
    Some((kept, forwarder, address, browser))
}

#[test]
fn a_browser_shows_what_the_json_says_and_charts_that_move() {
    let Some((_kept, forwarder, address, mut browser)) = forwarder_in_browser() else { return };
    wait_for(&mut browser, "document.querySelectorAll('#ports tbody tr').length === 2");
    assert_eq!(browser.evaluate("document.getElementById('kind').textContent.split(' ')[0]"), "forward");

    let lost = forwarder.send_to("203.0.113.1", 100, "10kpps", 64);
    // What a line showed two minutes ago has left it; so there is more until it is seen.
    wait_until("the received packets of west are a line that goes up and down", || {
        forwarder.send(100);
        let heights = "[...document.querySelectorAll('#ports figure')]
            .filter((figure) => figure.querySelector('figcaption').textContent === 'west')
            .map((figure) => figure.querySelector('path').getAttribute('d').slice(1).split('L').map((point) => point.split(' ')[1]))[0] ?? []";
        let heights = browser.evaluate(heights);
        let heights = heights.as_array().expect("a list");
        heights.len() > 3 && heights.iter().any(|height| *height != heights[0])
    });

    browser.evaluate("document.querySelector('#all details').open = true");
    let mut all = Value::Null;
    wait_until("the page shows what the JSON says", || {
        all = served(address);
        shown(&mut browser) == expected(&all)
    });
    assert!(at_rest(&all).len() > 20, "{all:#}");
    let meaning = &all["reasons"]["no-route"]["help"];
    let wanted = json!(["no-route", "0", lost.to_string(), "notice", "lane0 forwarder", meaning]);
    wait_until("drops have come to rest", || browser.evaluate(&row("drops", "no-route")) == wanted);
    let ledger = browser.evaluate(&row("pools", "packets"));
    let buffers = sum(&all, "pool", "buffers", ("pool", "packets")).to_string();
    assert_eq!(ledger[1].as_str().map(|count| count.replace(',', "")), Some(buffers), "{ledger}");

    // Charts and tables have names for who doesn't see them.
    assert_eq!(browser.evaluate("document.querySelectorAll('svg:not([role=img][aria-label])').length"), 0);
    assert_eq!(
        browser.evaluate(
            "[...document.querySelectorAll('table')].filter((table) => !table.caption?.textContent).length"
        ),
        0
    );
    assert!(browser.evaluate("document.querySelectorAll('svg').length").as_u64() >= Some(4));
    // All of it fits, and there is a dark one.
    let mut colours = Vec::new();
    for (width, colour) in [(1280, "light"), (390, "dark")] {
        let size = json!({ "width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 1000 });
        browser.order("Emulation.setDeviceMetricsOverride", &size);
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": colour }] });
        browser.order("Emulation.setEmulatedMedia", &media);
        wait_for(
            &mut browser,
            &format!("innerWidth === {width} && document.documentElement.scrollWidth <= {width}"),
        );
        colours.push(browser.evaluate("getComputedStyle(document.body).backgroundColor"));
    }
    assert_ne!(colours[0], colours[1]);
    // By keyboard.
    browser.press("Tab", 9, "");
    wait_for(&mut browser, "document.activeElement.id === 'freeze'");
    browser.press("Enter", 13, "\r");
    wait_for(&mut browser, "document.getElementById('live').textContent === 'Frozen'");

    assert_eq!(browser.complaints(), [""; 0]);
    forwarder.finish();
    wait_for(
        &mut browser,
        "document.getElementById('trouble').textContent.includes(\"doesn't answer since\")",
    );
    assert_eq!(browser.evaluate("document.getElementById('trouble').hidden"), false);
    // And a page that is wrong would have been noticed.
    browser.go("data:text/html,<script>nonsense()</script>");
    wait_until("its error is heard", || {
        browser.complaints().iter().any(|said| said.contains("nonsense is not defined"))
    });
}

#[test]
fn a_browser_shows_what_leads_where_and_what_passes_there() {
    let Some((_kept, forwarder, _, mut browser)) = forwarder_in_browser() else { return };
    let pictures = "[...document.querySelectorAll('#stages .graphs svg')]";
    wait_for(&mut browser, &format!("{pictures}.length === 1"));
    let said = browser.evaluate(&format!("{pictures}[0].getAttribute('aria-label')"));
    let said = said.as_str().expect("a text");
    for way in ["lane0", "west to forwarder", "forwarder to east by port1"] {
        assert!(said.contains(way), "nothing of {way}: {said}");
    }
    for (kind, name) in [("input", "west"), ("stage", "forwarder"), ("output", "east")] {
        let names =
            format!("[...document.querySelectorAll('.graphs .{kind} text')].map((text) => text.textContent)");
        assert_eq!(browser.evaluate(&format!("{names}.includes('{name}')")), true, "{kind} {name}");
    }
    // A rate is shown for a second only: all that were are kept.
    browser.evaluate(
        "window.shown = new Map();
         for (const way of document.querySelectorAll('.graphs .way')) {
             const [name, rate] = way.querySelectorAll('text');
             shown.set(name.textContent, shown.get(name.textContent) ?? []);
             new MutationObserver(() => shown.get(name.textContent).push(rate.textContent)).observe(rate, { childList: true });
         }",
    );
    wait_until("packets are seen on the ways from west and to east", || {
        forwarder.send(100);
        browser.evaluate("['', 'port1'].every((name) => shown.get(name).some((rate) => /[1-9]/.test(rate)))")
            == true
    });
    wait_for(&mut browser, "['', 'port1'].every((name) => shown.get(name).at(-1) === '0/s')");
    assert_eq!(browser.evaluate("shown.get('port0').every((rate) => rate === '0/s')"), true);
    assert_eq!(browser.complaints(), [""; 0]);
    forwarder.finish();
}

/// Cells of the row of the forwarder: name, packets a second, packets, made a second, cycles of a packet, what 99 % took, share.
const FORWARDER: &str = "lane0 forwarder";

#[test]
fn a_browser_shows_how_buffers_lie_over_the_sets_of_a_cache() {
    let Some((_kept, forwarder, address, mut browser)) = forwarder_in_browser() else { return };
    let layout = json_at(address, "/layout.json");
    wait_for(&mut browser, "document.querySelectorAll('#pools tbody tr').length > 0");
    if layout["cache"].is_null() {
        // A machine that tells nothing of its caches.
        assert_eq!(browser.evaluate("document.querySelector('#pools > .none').hidden"), false);
        forwarder.finish();
        return;
    }
    let sets = layout["cache"]["sets"].as_u64().expect("a number");
    let lines = layout["pools"][0]["lines"].as_array().expect("a list");
    let total: u64 = lines.iter().filter_map(Value::as_u64).sum();
    let buffers = layout["pools"][0]["buffers"].as_u64().expect("a number");
    assert_eq!((lines.len() as u64, total), (sets, 2 * buffers), "two of each buffer");

    let map = "document.querySelector('.heats svg')";
    let said = browser.evaluate(&format!("{map}.getAttribute('aria-label')"));
    let said = said.as_str().expect("a text").replace(',', "");
    for part in ["Pool packets:", &format!("{buffers} buffers"), &format!("{sets} sets")] {
        assert!(said.contains(part), "nothing of {part}: {said}");
    }
    // From set to set by keys, each is said as the JSON has it.
    browser.evaluate(&format!("{map}.focus()"));
    let text = "document.querySelector('.heats [role=status]').textContent.replaceAll(',', '')";
    let says = |set: usize| json!(format!("set {set}: {} hot lines", lines[set]));
    assert_eq!(browser.evaluate(text), says(0));
    browser.press("ArrowRight", 39, "");
    browser.press("ArrowRight", 39, "");
    assert_eq!(browser.evaluate(text), says(2));
    browser.press("End", 35, "");
    assert_eq!(browser.evaluate(text), says(lines.len() - 1));
    // And drawn so: none is missing, the fullest is the strongest.
    let drawn = browser.evaluate(
        "[...document.querySelectorAll('.heats .set')].map((square) => parseFloat(square.getAttribute('fill-opacity')))",
    );
    let drawn: Vec<f64> = drawn.as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
    let most = lines.iter().filter_map(Value::as_f64).fold(0.0, f64::max);
    assert_eq!(drawn.len(), lines.len());
    for (drawn, lines) in drawn.iter().zip(lines) {
        assert!((drawn - lines.as_f64().expect("a number") / most).abs() < 0.001, "{lines} as {drawn}");
    }
    assert_eq!(browser.complaints(), [""; 0]);
    forwarder.finish();
}

#[test]
fn a_browser_shows_what_stages_take_while_they_are_timed() {
    let Some((_kept, forwarder, _, mut browser)) = forwarder_in_browser() else { return };
    // It has looked twice: it sees from now on what changes.
    wait_for(&mut browser, "document.querySelectorAll('#ports figure').length === 2");
    let stage = row("stages", FORWARDER);
    assert_eq!(browser.evaluate(&stage)[4], "–");
    assert_eq!(browser.evaluate("document.querySelectorAll('.flames figure').length"), 0);
    assert_eq!(browser.evaluate("document.querySelector('#stages .none').hidden"), false);
    // A share is shown for a second only: all that were are kept, as the table and as the picture say it.
    browser.evaluate(&format!(
        "window.seen = [];
         new MutationObserver(() => {{
             const parts = [...document.querySelectorAll('.flames svg svg')].map((part) =>
                 [part.getAttribute('class'), part.querySelector('text').textContent, parseFloat(part.getAttribute('width'))]);
             seen.push([({stage})[6], parts, document.querySelector('.flames svg')?.getAttribute('aria-label')]);
         }}).observe(document.querySelector('.flames'), {{ childList: true, subtree: true }})"
    ));

    let (answer, _timing) = time_stages(&forwarder.socket);
    assert!(answer["error"].is_null(), "{answer}");
    // The first burst is timed, and no other of so few.
    let timed = |name| sum(&stats(&forwarder.socket), "stage-timed", name, ("stage", "forwarder"));
    wait_until("a burst was timed", || {
        forwarder.send(20);
        timed("bursts") > 0
    });
    assert_eq!(timed("bursts"), 1);
    let cycles = timed("cycles") as f64 / timed("packets") as f64;
    wait_for(&mut browser, &format!("({stage})[4] !== '–'"));
    let shown = browser.evaluate(&format!("parseFloat(({stage})[4])"));
    assert!((shown.as_f64().expect("a number") - cycles).abs() < 0.051, "{shown} for {cycles}");
    // Of one burst, all is in the range where its mean is.
    let range = browser.evaluate(&format!("({stage})[5]"));
    let range = range.as_str().expect("a text");
    let (relation, bound) = range.split_once(' ').expect("two words");
    let bound: f64 = bound.parse().expect("a number");
    let is_in = if relation == "<" {
        cycles < bound && (bound <= 16.0 || cycles >= bound / 2.0)
    } else {
        cycles >= bound
    };
    assert!(is_in, "{cycles} in {range:?}");

    wait_until("a share is seen", || {
        forwarder.send(100);
        browser.evaluate("seen.some(([share]) => share !== '–')") == true
    });
    let seen = browser.evaluate("seen.find(([share]) => share !== '–')");
    let [share, parts, said] = [&seen[0], &seen[1], &seen[2]];
    let words = format!("forwarder {}", share.as_str().expect("a text"));
    assert_eq!((&parts[0][0], &parts[0][1]), (&json!("stage"), &json!(words)), "{seen}");
    assert!(said.as_str().is_some_and(|said| said.contains("lane0") && said.contains(&words)), "{seen}");
    let widths = parts.as_array().expect("a list").iter().filter_map(|part| part[2].as_f64());
    assert!((widths.sum::<f64>() - 100.0).abs() < 0.06, "{seen}");
    assert_eq!(browser.complaints(), [""; 0]);

    // Made up: steps are parts of their stage, and what seems to take more than there was is drawn narrower.
    let drawn = browser.evaluate(
        "(async () => {
             const [{ Flames }, { Look }] = await Promise.all([import('./flame.js'), import('./rates.js')]);
             const value = (stage, set, name, value) => ({ labels: { lane: 'lane0', ...stage }, set, name, value });
             const [upper, lower] = [{ stage: 'upper' }, { stage: 'lower' }];
             const look = (times) => ({ age_ns: 1e9 * times, descriptions: {}, reasons: {}, values: [
                 value({}, 'lane', 'busy-cycles', 1000 * times),
                 value(upper, 'stage', 'processed', 10 * times),
                 value(upper, 'stage-timed', 'packets', 1 * times),
                 value(upper, 'stage-timed', 'cycles', 50 * times),
                 value(upper, 'mac', 'qos-packets', 10 * times),
                 value(upper, 'mac', 'qos-cycles', 300 * times),
                 value(upper, 'mac', 'filter-packets', 10 * times),
                 value(upper, 'mac', 'filter-cycles', 300 * times),
                 value(lower, 'stage', 'processed', 10 * times),
                 value(lower, 'mac', 'keys-packets', 10 * times),
                 value(lower, 'mac', 'keys-cycles', 700 * times),
             ] });
             const section = document.createElement('section');
             section.innerHTML = '<div class=\"flames\"></div>';
             const flames = new Flames(section);
             const parts = () => [...section.querySelectorAll('svg svg')].map((part) =>
                 [...['class', 'x', 'y', 'width'].map((name) => part.getAttribute(name)), part.querySelector('text').textContent].join(' '));
             flames.show(new Look(look(2), look(1)).flames());
             const busy = parts();
             flames.show(new Look(look(2), look(2)).flames());
             const idle = parts();
             flames.clear();
             return { busy, idle, left: section.querySelectorAll('figure').length };
         })()",
    );
    let busy = [
        "stage 0.000% 0 41.667% upper 50.0 %",
        "step 0.000% 28 20.833% qos 30.0 %",
        "step 20.833% 28 20.833% filter 30.0 %",
        "stage 41.667% 0 58.333% lower 70.0 %",
        "step 41.667% 28 58.333% keys 70.0 %",
    ];
    let idle = ["rest 0.000% 0 100.000% not busy"];
    assert_eq!(drawn, json!({ "busy": busy, "idle": idle, "left": 0 }));
    forwarder.finish();
}

#[test]
fn a_browser_tells_nonsense_and_another_instance_from_the_one_it_shows() {
    if !requirements::programs(&PROGRAMS) {
        return;
    }
    let _turn = turn::beside_others();
    let (directory, another) = (directory(), directory());
    let (former, address) = forwarder(directory.path(), &[]);
    let door = Door::open(Behind::Instance(address));
    let mut browser = browser(directory.path(), door.address);
    let received = former.send(1_000);
    let west = row("ports", "west");
    wait_for(&mut browser, &format!("{west}?.[3].replaceAll(',', '') === '{received}'"));
    wait_for(&mut browser, "document.querySelectorAll('#ports figure').length === 2");
    browser.evaluate(
        "document.querySelectorAll('#ports figure').forEach((figure) => { figure.dataset.former = ''; })",
    );
    let kept = "document.querySelectorAll('#ports figure[data-former]').length";

    door.lead_to(Behind::Nonsense);
    wait_for(
        &mut browser,
        "document.getElementById('trouble').textContent.startsWith(\"What came can't be shown\")",
    );
    assert_eq!(browser.evaluate("document.getElementById('live').textContent"), "Trouble");
    door.lead_to(Behind::Instance(address));
    wait_for(&mut browser, "document.getElementById('live').textContent === 'Live'");
    assert_eq!(browser.evaluate(kept), 2);

    // One that begins more than ten seconds later is another one, however old it is when it is seen first.
    wait_until("the former is older than that", || served(address)["age_ns"].as_u64() > Some(11_000_000_000));
    let (latter, address) = forwarder(another.path(), &[]);
    door.lead_to(Behind::Instance(address));
    wait_for(
        &mut browser,
        &format!("document.querySelectorAll('#ports figure').length === 2 && {kept} === 0"),
    );
    assert_eq!(browser.evaluate(&west)[3], "0");
    wait_for(&mut browser, &format!("{west}[1] === '0'"));
    former.finish();
    latter.finish();
}

#[test]
fn a_browser_is_asked_for_the_token() {
    if !requirements::programs(&PROGRAMS) {
        return;
    }
    let (_turn, directory) = directory_beside_others();
    let token = "a-token-of-enough-letters";
    let file = token_file(directory.path(), token);
    let more = ["--metrics-token-file", file.to_str().expect("a plain path")];
    let (forwarder, address) = forwarder(directory.path(), &more);
    for path in ["/stats.json", "/graph.json", "/layout.json"] {
        assert!(get(address, path, "").0.starts_with("HTTP/1.1 401 "), "{path}");
    }
    let mut browser = browser(directory.path(), address);
    let enter = |token: &str| {
        format!(
            "document.getElementById('token').value = '{token}'; document.querySelector('#login button').click()"
        )
    };
    wait_for(&mut browser, "!document.getElementById('login').hidden");
    browser.evaluate(&enter("another-token-of-letters"));
    wait_for(
        &mut browser,
        "document.getElementById('trouble').textContent.startsWith('That is not the token')",
    );
    assert_eq!(browser.evaluate("document.querySelectorAll('tbody tr').length"), 0);
    wait_for(&mut browser, "!document.getElementById('login').hidden");
    browser.evaluate(&enter(token));
    wait_for(&mut browser, "document.querySelectorAll('#ports tbody tr').length === 2");
    forwarder.finish();
}
