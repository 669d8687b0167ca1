//! Who asks.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::place;
use crate::protocol::{Failure, Instance, Request, VERSION};

/// How long a client waits for something to come: on a machine whose CPUs are all taken by lanes, a thread that stands back behind
/// them takes its time.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// The longest answer that is read, in bytes: some million routes.
const LONGEST_ANSWER: u64 = 1 << 30;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error("nobody answers at {path:?}: {source}")]
    NotThere {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The conversation broke off.
    #[error("{path:?} does not answer: {source}")]
    Silent {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It said something else.
    #[error("what {path:?} answers is not understood: {source}")]
    Garbage {
        /// Where.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// It speaks another version of the protocol.
    #[error(
        "{path:?} speaks version {theirs} of the protocol, and this command version {VERSION}: use the command that came with it"
    )]
    Version {
        /// Where.
        path: PathBuf,
        /// Which version that is.
        theirs: u32,
    },
    /// It says that it can't.
    #[error("{0}")]
    Refused(String),
}

/// A connection to an instance.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

impl Client {
    /// Connects to the socket at a path.
    ///
    /// # Errors
    /// [`ClientError::NotThere`].
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let not_there = |source| ClientError::NotThere { path: path.to_owned(), source };
        if path.parent().is_some_and(|directory| directory == place::of_user()) {
            place::check_own(&place::of_user()).map_err(not_there)?;
        }
        let stream = UnixStream::connect(path).map_err(not_there)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(not_there)?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(not_there)?;
        Ok(Self { stream: BufReader::new(stream), path: path.to_owned() })
    }

    /// Asks something, and returns the line that is answered.
    ///
    /// # Errors
    /// [`ClientError::Silent`] if there is none, [`ClientError::Refused`] with what the instance says.
    pub fn ask_for_line(&mut self, request: &impl Serialize) -> Result<String, ClientError> {
        let silent = |source| ClientError::Silent { path: self.path.clone(), source };
        let mut line = serde_json::to_vec(request).map_err(|error| silent(error.into()))?;
        line.push(b'\n');
        // Whoever has sent an error and closed the connection may have left it to be read.
        let sent = self.stream.get_mut().write_all(&line);
        let mut answer = String::new();
        let read = self.stream.by_ref().take(LONGEST_ANSWER).read_line(&mut answer);
        if !answer.ends_with('\n') {
            sent.map_err(silent)?;
            read.map_err(silent)?;
            return Err(silent(io::ErrorKind::UnexpectedEof.into()));
        }
        match serde_json::from_str(&answer) {
            Ok(Failure { error }) => Err(ClientError::Refused(error)),
            Err(_) => Ok(answer),
        }
    }

    /// Asks something, and reads what is answered.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ask<T: DeserializeOwned>(&mut self, request: &impl Serialize) -> Result<T, ClientError> {
        let answer = self.ask_for_line(request)?;
        serde_json::from_str(&answer)
            .map_err(|source| ClientError::Garbage { path: self.path.clone(), source })
    }

    /// Asks who it is.
    ///
    /// # Errors
    /// [`ClientError`], [`ClientError::Version`] above all.
    pub fn instance(&mut self) -> Result<Instance, ClientError> {
        #[derive(serde::Deserialize)]
        struct Protocol {
            protocol: u32,
        }
        let answer = self.ask_for_line(&Request::Instance {})?;
        let garbage = |source| ClientError::Garbage { path: self.path.clone(), source };
        let Protocol { protocol: theirs } = serde_json::from_str(&answer).map_err(garbage)?;
        if theirs != VERSION {
            return Err(ClientError::Version { path: self.path.clone(), theirs });
        }
        serde_json::from_str(&answer).map_err(garbage)
    }

    /// What follows the last answer.
    pub fn into_stream(self) -> BufReader<UnixStream> {
        self.stream
    }
}
