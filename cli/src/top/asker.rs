//! Asks an instance again and again, on a thread of its own, so that keys are heard while it takes its time.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use warmlane::assembly::cycles::{CyclesRequest, TimingStages};
use warmlane::control::{Client, ClientError, Instance, Request, Stats};

/// What was heard.
#[derive(Debug)]
pub(super) enum Heard {
    /// Who answers: at the beginning, and when it was silent before.
    Instance(Instance),
    /// What it has counted.
    Stats(Stats),
    /// Nobody answers, and why. It is tried again.
    Nothing(String),
}

/// Asks at a socket every `interval`, until the receiver is dropped.
pub(super) fn start(path: PathBuf, interval: Duration) -> Receiver<Heard> {
    // Whoever is slow to read gets old news one after the other, and no more is asked meanwhile.
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        while let Err(error) = ask(&path, interval, &sender) {
            if sender.send(Heard::Nothing(error.to_string())).is_err() {
                return;
            }
            std::thread::sleep(interval);
        }
    });
    receiver
}

/// Lets an instance time its stages as long as what this returns is kept; `None` if it can't, or others let it already.
pub(super) fn time_stages(path: &Path) -> Option<Client> {
    let mut client = Client::connect(path).ok()?;
    client.ask::<TimingStages>(&CyclesRequest::default()).ok().map(|_| client)
}

/// Returns when nobody listens any more.
fn ask(path: &Path, interval: Duration, sender: &SyncSender<Heard>) -> Result<(), ClientError> {
    let mut client = Client::connect(path)?;
    let instance = client.instance()?;
    if sender.send(Heard::Instance(instance)).is_err() {
        return Ok(());
    }
    let _timing = time_stages(path);
    loop {
        let stats = client.ask(&Request::Stats {})?;
        if sender.send(Heard::Stats(stats)).is_err() {
            return Ok(());
        }
        std::thread::sleep(interval);
    }
}
