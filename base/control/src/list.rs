//! The instances that can be asked.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use crate::client::{Client, ClientError};
use crate::place::{EXTENSION, name_of};
use crate::protocol::Instance;

/// A control socket in a directory.
#[derive(Debug)]
pub struct Found {
    /// What the instance is called.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Who answers there.
    pub state: State,
}

impl Found {
    /// Takes away the socket of an instance that was killed. `false` if it isn't dead, or another instance has come there meanwhile.
    ///
    /// # Errors
    /// The file can't be removed.
    pub fn remove_dead(&self) -> io::Result<bool> {
        match state(&self.path) {
            Some(State::Dead) if matches!(self.state, State::Dead) => {
                std::fs::remove_file(&self.path).map(|()| true)
            }
            _ => Ok(false),
        }
    }
}

/// Who answers at a control socket.
#[derive(Debug)]
pub enum State {
    /// This instance.
    Running(Instance),
    /// Nobody: it was left behind by an instance that was killed. An instance of the same name replaces it.
    Dead,
    /// Somebody may be there, and can't be asked.
    Unknown(ClientError),
}

/// Asks all sockets in a directory who they are, all at once, and lists them by their names. One that isn't there has none.
///
/// # Errors
/// The directory can't be read.
pub fn find(directory: &Path) -> io::Result<Vec<Found>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        if is_socket && path.extension().is_some_and(|extension| extension == EXTENSION) {
            paths.push(path);
        }
    }
    paths.sort();
    thread::scope(|scope| {
        let asked: Vec<_> = paths.iter().map(|path| scope.spawn(|| state(path))).collect();
        let states = asked.into_iter().map(|thread| {
            let failed = || ClientError::Refused("it could not be asked".to_owned());
            thread.join().unwrap_or_else(|_| Some(State::Unknown(failed())))
        });
        let found = states.zip(&paths);
        let found = found.filter_map(|(state, path)| {
            Some(Found { name: name_of(path), path: path.clone(), state: state? })
        });
        Ok(found.collect())
    })
}

/// Who answers there; `None` if it has gone meanwhile.
fn state(path: &Path) -> Option<State> {
    match Client::connect(path).and_then(|mut client| client.instance()) {
        Ok(instance) => Some(State::Running(instance)),
        Err(ClientError::NotThere { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
        Err(ClientError::NotThere { source, .. }) if source.kind() == io::ErrorKind::ConnectionRefused => {
            Some(State::Dead)
        }
        Err(error) => Some(State::Unknown(error)),
    }
}
