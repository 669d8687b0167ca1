//! An address behind which an instance can be replaced by another one, or by nonsense: the system might give a port that is free
//! for a moment to somebody else.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// Who answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Behind {
    /// An instance whose metrics are there.
    Instance(SocketAddr),
    /// Somebody who speaks HTTP and says no JSON.
    Nonsense,
}

/// It is open until the test's process ends.
pub(super) struct Door {
    pub(super) address: SocketAddr,
    behind: Arc<Mutex<Behind>>,
}

impl Door {
    pub(super) fn open(behind: Behind) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let behind = Arc::new(Mutex::new(behind));
        let door = Self { address, behind: Arc::clone(&behind) };
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let behind = *behind.lock().unwrap_or_else(PoisonError::into_inner);
                std::thread::spawn(move || pass(&client, behind));
            }
        });
        door
    }

    /// Leads whoever comes from now on to somebody else.
    pub(super) fn lead_to(&self, behind: Behind) {
        *self.behind.lock().unwrap_or_else(PoisonError::into_inner) = behind;
    }
}

fn pass(mut client: &TcpStream, behind: Behind) -> io::Result<()> {
    match behind {
        Behind::Instance(address) => {
            let instance = TcpStream::connect(address)?;
            let (from, to) = (client.try_clone()?, instance.try_clone()?);
            std::thread::spawn(move || {
                io::copy(&mut &from, &mut &to)?;
                to.shutdown(Shutdown::Write)
            });
            io::copy(&mut &instance, &mut client)?;
        }
        Behind::Nonsense => {
            // Who closes with something unread may lose the answer.
            let (mut request, mut line) = (BufReader::new(client), String::new());
            while request.read_line(&mut line)? > "\r\n".len() {
                line.clear();
            }
            client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nnonsense")?;
        }
    }
    client.shutdown(Shutdown::Both)
}
