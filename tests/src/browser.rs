//! A browser without a window, told what to do over pipes (the Chrome `DevTools` protocol), so that tests wait for what a page
//! shows and for no time.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};
use warmlane_testkit::exchange::until;
use warmlane_testkit::process::Process;

use crate::command::SHORT;

/// The program.
pub const BROWSER: &str = "chromium";

/// What it takes to run a [`Browser`], for `requirements::programs`.
pub const PROGRAMS: [&str; 3] = [BROWSER, "sh", "mkfifo"];

/// What both ways to run one say. Its files are in `directory`.
fn arguments(directory: &Path) -> [String; 5] {
    [
        "--headless".to_owned(),
        "--no-sandbox".to_owned(),
        "--disable-gpu".to_owned(),
        "--disable-dev-shm-usage".to_owned(),
        format!("--user-data-dir={}", directory.join("profile").display()),
    ]
}

/// The command that opens a page and ends by itself; what to do with the page is to be added. Its files are in `directory`.
pub fn once(directory: &Path) -> Command {
    let mut command = Command::new(BROWSER);
    command.args(arguments(directory)).current_dir(directory);
    command
}

/// A browser with one page. Dropping it ends it.
#[derive(Debug)]
pub struct Browser {
    process: Process,
    orders: File,
    messages: Receiver<Value>,
    session: Option<String>,
    /// The number of the last order.
    last: u64,
    /// Which document was loaded last, as the browser numbers them.
    loaded: Option<String>,
    /// What the page's scripts, and the browser itself, complained of.
    complaints: Vec<String>,
}

impl Browser {
    /// Starts one whose files are in `directory`, with an empty page.
    ///
    /// # Panics
    /// If it doesn't start.
    #[track_caller]
    pub fn start(directory: &Path) -> Self {
        let (orders, answers) = (directory.join("orders"), directory.join("answers"));
        let made = Process::run(Command::new("mkfifo").args([&orders, &answers]), SHORT);
        made.expect_success("mkfifo");
        let mut command = Command::new("sh");
        // It reads from descriptor 3 and writes to 4. The shell becomes the browser, so that who ends the one ends the other.
        command.args(["-c", "orders=$1 answers=$2; shift 2; exec \"$@\" 3<\"$orders\" 4>\"$answers\"", "sh"]);
        command.args([&orders, &answers]).arg(BROWSER).args(arguments(directory));
        command.args(["--no-first-run", "--remote-debugging-pipe", "about:blank"]);
        let process = Process::spawn(&mut command);
        // Each end is open once the shell has the other one open: first this one.
        let orders = OpenOptions::new().write(true).open(orders).expect("it was made");
        let (sender, messages) = channel();
        // It ends with the browser, or when nobody wants to hear more.
        std::thread::spawn(move || {
            let reader = BufReader::new(File::open(answers).expect("it was made"));
            for message in reader.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice::<Value>(&message).expect("the browser says JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (complaints, loaded) = (Vec::new(), None);
        let mut browser = Self { process, orders, messages, session: None, last: 0, loaded, complaints };
        let page = browser.order("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.order("Target.attachToTarget", &attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            browser.order(domain, &json!({}));
        }
        browser.order("Page.setLifecycleEventsEnabled", &json!({ "enabled": true }));
        // As if somebody sat in front of it.
        browser.order("Emulation.setFocusEmulationEnabled", &json!({ "enabled": true }));
        browser
    }

    /// Gives an order, and returns its result.
    ///
    /// # Panics
    /// If the browser refuses, ends or says nothing.
    #[track_caller]
    pub fn order(&mut self, method: &str, parameters: &Value) -> Value {
        self.last += 1;
        let mut order = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            order["sessionId"] = json!(session);
        }
        let sent = self.orders.write_all(format!("{order}\0").as_bytes());
        sent.unwrap_or_else(|error| panic!("{method}: {error}\n{}", self.process.errors()));
        loop {
            let mut message = self.hear();
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
        }
    }

    /// The next message, after notes were taken of what it tells of the page.
    #[track_caller]
    fn hear(&mut self) -> Value {
        let message = self.messages.recv_timeout(SHORT);
        let message = message.unwrap_or_else(|error| panic!("{error}\n{}", self.process.errors()));
        let parameters = &message["params"];
        if message["method"] == "Page.lifecycleEvent" && parameters["name"] == "load" {
            self.loaded = parameters["loaderId"].as_str().map(str::to_owned);
        }
        self.complaints.extend(complaint(&message));
        message
    }

    /// Goes to an address, and waits until what is there is loaded and its scripts have run.
    ///
    /// # Panics
    /// If nothing is there.
    #[track_caller]
    pub fn go(&mut self, address: &str) {
        let gone = self.order("Page.navigate", &json!({ "url": address }));
        let document = gone["loaderId"].as_str();
        assert!(gone["errorText"].is_null() && document.is_some(), "{address}: {gone}");
        while self.loaded.as_deref() != document {
            self.hear();
        }
    }

    /// The value of an expression in the page.
    ///
    /// # Panics
    /// If it throws.
    #[track_caller]
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.order("Runtime.evaluate", &asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Presses a key and lets it go. `number` is the one that Windows has for it, and `text` what it writes.
    ///
    /// # Panics
    /// If the browser ends or says nothing.
    #[track_caller]
    pub fn press(&mut self, key: &str, number: u8, text: &str) {
        for (kind, text) in [("keyDown", text), ("keyUp", "")] {
            let event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": number, "text": text });
            self.order("Input.dispatchKeyEvent", &event);
        }
    }

    /// What went wrong in the page until now.
    ///
    /// # Panics
    /// If the browser ends or says nothing.
    #[track_caller]
    pub fn complaints(&mut self) -> &[String] {
        // What came before the answer to this has been read.
        self.evaluate("1");
        &self.complaints
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It has processes of its own, and files that are to be deleted: it ends them when it is told to end. Where a test has
        // failed, it is killed.
        let told = self.orders.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        if told.is_ok() && !std::thread::panicking() {
            until("the browser has ended", || self.process.has_ended());
        }
    }
}

/// What a message says went wrong, if it says that.
fn complaint(message: &Value) -> Option<String> {
    let parameters = &message["params"];
    let is_bad = match message["method"].as_str()? {
        "Runtime.exceptionThrown" => true,
        "Runtime.consoleAPICalled" => parameters["type"] == "error" || parameters["type"] == "assert",
        "Log.entryAdded" => parameters["entry"]["level"] == "error",
        _ => false,
    };
    is_bad.then(|| parameters.to_string())
}
