//! What more than one of this crate's tests needs.

use std::io::Read;

use warmlane_pcap::{PcapError, Reader};

/// A frame that was copied out of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) timestamp: u64,
    pub(crate) original_length: u32,
    pub(crate) interface: u32,
    pub(crate) link_type: u16,
    pub(crate) fcs_length: u8,
    pub(crate) data: Vec<u8>,
}

/// Every frame up to the end or the first error.
pub(crate) fn read_all(input: impl Read) -> (Vec<Owned>, Option<PcapError>) {
    let mut frames = Vec::new();
    let mut reader = match Reader::new(input) {
        Ok(reader) => reader,
        Err(error) => return (frames, Some(error)),
    };
    loop {
        match reader.next_frame() {
            Ok(Some(frame)) => frames.push(Owned {
                timestamp: frame.timestamp_nanoseconds,
                original_length: frame.original_length,
                interface: frame.interface,
                link_type: frame.link_type.0,
                fcs_length: frame.fcs_length,
                data: frame.data.to_vec(),
            }),
            Ok(None) => return (frames, None),
            Err(error) => {
                assert!(reader.next_frame().unwrap().is_none(), "no frames after an error");
                assert_eq!(reader.frames(), frames.len() as u64);
                return (frames, Some(error));
            }
        }
    }
}
