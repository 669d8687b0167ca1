//! Asks an instance again and again, on a thread of its own, so that keys are heard while it takes its time.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use warmlane::assembly::cycles::{self, CyclesRequest, TimingStages};
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

/// Why an instance doesn't time its stages for us.
#[derive(Debug)]
pub(super) enum Untimed {
    /// It does for as many others as it can, or couldn't be reached. Later it may.
    Now,
    /// It can't, or doesn't know how.
    Ever,
}

/// Lets an instance time its stages as long as what this returns is kept.
pub(super) fn time_stages(path: &Path) -> Result<Client, Untimed> {
    let mut client = Client::connect(path).map_err(|_| Untimed::Now)?;
    match client.ask::<TimingStages>(&CyclesRequest::default()) {
        Ok(_) => Ok(client),
        Err(ClientError::Refused(sentence)) if cycles::is_for_now(&sentence) => Err(Untimed::Now),
        Err(_) => Err(Untimed::Ever),
    }
}

/// Returns when nobody listens any more.
fn ask(path: &Path, interval: Duration, sender: &SyncSender<Heard>) -> Result<(), ClientError> {
    let mut client = Client::connect(path)?;
    let instance = client.instance()?;
    if sender.send(Heard::Instance(instance)).is_err() {
        return Ok(());
    }
    let mut timing = time_stages(path);
    loop {
        let stats = client.ask(&Request::Stats {})?;
        if sender.send(Heard::Stats(stats)).is_err() {
            return Ok(());
        }
        std::thread::sleep(interval);
        if matches!(timing, Err(Untimed::Now)) {
            timing = time_stages(path);
        }
    }
}
