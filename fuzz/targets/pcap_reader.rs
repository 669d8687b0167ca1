//! The reader of capture files, on any bytes: no panic, no frame from outside the file, and the same frames however
//! the bytes arrive.

#![no_main]

use std::io::Read;

use libfuzzer_sys::fuzz_target;
use warmlane_pcap::Reader;

/// Gives a few bytes at a time.
struct Dribble<'a>(&'a [u8]);

impl Read for Dribble<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(1 + self.0.len() % 7);
        self.0.read(&mut buffer[..count])
    }
}

/// What was read until the end or the first error.
#[derive(Debug, PartialEq)]
struct Contents {
    frames: Vec<(u64, u32, u32, Vec<u8>)>,
    error: Option<String>,
}

fn read(input: impl Read) -> Contents {
    let mut contents = Contents { frames: Vec::new(), error: None };
    let mut reader = match Reader::new(input) {
        Ok(reader) => reader,
        Err(error) => return Contents { error: Some(error.to_string()), ..contents },
    };
    loop {
        match reader.next_frame() {
            Ok(Some(frame)) => {
                assert!(frame.without_fcs().len() <= frame.data.len());
                let numbers = (frame.timestamp_nanoseconds, frame.original_length, frame.interface);
                contents.frames.push((numbers.0, numbers.1, numbers.2, frame.data.to_vec()));
            }
            Ok(None) => break,
            Err(error) => {
                contents.error = Some(error.to_string());
                break;
            }
        }
    }
    assert_eq!(reader.frames(), contents.frames.len() as u64);
    contents
}

fuzz_target!(|bytes: &[u8]| {
    let at_once = read(bytes);
    let captured: usize = at_once.frames.iter().map(|frame| frame.3.len()).sum();
    assert!(captured <= bytes.len());
    assert_eq!(read(Dribble(bytes)), at_once);
});
